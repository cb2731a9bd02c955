"""Changes to the data of chosen clients: images in another style, classes, noisy labels.

A transform is written ``"rotate(90, clients=5)"`` or made by the function of that name; ``clients``
is

- an integer: that many clients, drawn from the seed. All transforms draw from one order, so the
  clients of a smaller number are always among those of a larger one;
- a share in (0, 1]: ``0.5`` is half of them;
- a list of indices and names, in a spec ``only(0, 3, berlin)``;
- left out: all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, max_pool2d, pad

from glocal.core import rng
from glocal.core.errors import GlocalError, shown, unknown
from glocal.core.spec import Call
from glocal.core.validation import build, check, integer, real
from glocal.data.scaling import Transform, check_images, normalise, resize
from glocal.data.split import UnsplitData, from_counts, keyed

__all__ = ["TRANSFORMS", "Clients", "Transform", "apply", "chosen", "parse"]

Clients = int | float | str | Call | Sequence[int | str] | None
"""The values of ``clients``."""


def rotate(degrees: float, clients: Clients = None) -> Transform:
    """Rotate images anticlockwise, in training, validation and test.

    Multiples of 90° are exact; other angles are bilinear, with zeros where the corners were. Unless
    all clients' are rotated, their inputs then differ, and test examples are not pooled.
    """
    angle = real(degrees, "the angle in degrees") % 360

    def turn(x: Tensor, rows: Tensor, data: UnsplitData) -> Tensor:
        if angle % 180 and data.x.shape[-1] != data.x.shape[-2]:
            raise GlocalError("rotate needs square images, except by 180 degrees: pad them first.")
        return rotated(x, angle)

    return _style("rotate", degrees, clients, turn)


def rotated(x: Tensor, angle: float) -> Tensor:
    """Images rotated anticlockwise by an angle in degrees."""
    if angle % 90 == 0:
        return torch.rot90(x, int(angle // 90), (-2, -1))
    images = x if x.dim() == 4 else x[:, None]
    # The grid says where each target pixel comes from, with y downwards: the inverse rotation.
    a = torch.deg2rad(torch.tensor(angle, dtype=torch.float64)).to(x)
    zero = torch.zeros_like(a)
    matrix = torch.stack([a.cos(), -a.sin(), zero, a.sin(), a.cos(), zero]).view(1, 2, 3)
    grid = affine_grid(matrix.expand(len(x), 2, 3), list(images.shape), align_corners=False)
    return grid_sample(images, grid, align_corners=False).view_as(x)


def invert(clients: Clients = None) -> Transform:
    """Dark for bright: a pixel ``x`` becomes ``low + high − x``, of all images' least and most."""

    def inverted(x: Tensor, rows: Tensor, data: UnsplitData) -> Tensor:
        return data.x.min() + data.x.max() - x

    return _style("invert", None, clients, inverted)


def contrast(factor: float, clients: Clients = None) -> Transform:
    """Pixels move towards the middle of all images' range (``factor`` below 1), or away from it."""
    if real(factor, "the factor") < 0:
        raise GlocalError(f"the factor of contrast must be 0 or more, not {shown(factor)}.")

    def changed(x: Tensor, rows: Tensor, data: UnsplitData) -> Tensor:
        middle = (data.x.min() + data.x.max()) / 2
        return middle + factor * (x - middle)

    return _style("contrast", factor, clients, changed)


def pixel_noise(sd: float, clients: Clients = None) -> Transform:
    """Normal noise on every pixel; ``sd`` is its spread as a share of all images' range."""
    if real(sd, "sd") < 0:
        raise GlocalError(f"sd of pixel-noise must be 0 or more, not {shown(sd)}.")

    def noisy(x: Tensor, rows: Tensor, data: UnsplitData) -> Tensor:
        position = len(data.describe.get("transforms", []))
        keys = rng.fold(keyed(data.seed, f"pixel-noise {position}"), _drawn_by(data, rows))
        return x + sd * (data.x.max() - data.x.min()) * rng.normal(keys, x.shape[1:])

    return _style("pixel-noise", sd, clients, noisy)


def thicken(size: int = 2, clients: Clients = None) -> Transform:
    """Thicker strokes: each pixel becomes the brightest of ``size`` × ``size`` around it."""
    integer(size, "the size of thicken", 1, 15)

    def thicker(x: Tensor, rows: Tensor, data: UnsplitData) -> Tensor:
        images = x if x.dim() == 4 else x[:, None]
        before, after = (size - 1) // 2, size // 2
        edges = pad(images, (before, after, before, after), value=float(x.min()))
        return max_pool2d(edges, size, stride=1).view_as(x)

    return _style("thicken", size, clients, thicker)


def own_classes(*classes: int, clients: Clients) -> Transform:
    """Another label set: chosen clients have the examples of these classes, and nobody else has.

    Others give them theirs and get what the chosen had of other classes; what changes hands is
    shuffled and divided evenly. So clients still differ in label shares only.
    """
    if not classes:
        raise GlocalError("own-classes names no class: write own-classes(8, 9, clients=…).")

    def apply(data: UnsplitData) -> UnsplitData:
        if data.y.dim() != 1 or not data.target.classes or data.unit is not None:
            raise GlocalError(
                "own-classes needs one class for each example, and examples that can be taken "
                "apart: leave it out where labels are numbers or sequences, or rows have a group."
            )
        for each in classes:
            integer(each, "a class of own-classes", 0, data.classes - 1)
        theirs, K = set(chosen(clients, data.names, data.seed)), len(data.names)
        if len(theirs) == K:
            raise GlocalError(
                "own-classes leaves nobody without these classes: name fewer clients."
            )
        wanted = torch.isin(data.y, torch.tensor(classes))
        rows = [data.rows.of(k) for k in range(K)]
        stay = [wanted[r] if k in theirs else ~wanted[r] for k, r in enumerate(rows)]
        after = list(rows)
        for to in (sorted(theirs), [k for k in range(K) if k not in theirs]):
            moved = torch.cat([rows[k][~stay[k]] for k in range(K) if k not in to])
            keys = rng.fold(keyed(data.seed, "own-classes"), _drawn_by(data, moved))
            moved = moved[rng.bits(keys, 1).squeeze(-1).argsort()]
            for i, k in enumerate(to):
                after[k] = torch.cat([rows[k][stay[k]], moved[i :: len(to)]])
        counts = torch.tensor([len(r) for r in after])
        if not bool(counts.all()):
            empty = data.names[int((counts == 0).nonzero()[0])]
            raise GlocalError(f"own-classes leaves client {empty} no examples: name other classes.")
        return replace(data, rows=from_counts(torch.cat(after), counts))

    spelt = ", ".join(str(each) for each in classes)
    return Transform(f"own-classes({spelt}{_whose(clients)})", apply, alike=True)


def pair_noise(rate: float, clients: Clients = None, val: bool = False) -> Transform:
    """Training labels: class c becomes c+1 (the last becomes 0) with probability ``rate``.

    Validation labels stay clean, which real ones would not, unless ``val=true``.
    """
    return _noise("pair-noise", rate, clients, val, lambda y, key, C: (y + 1) % C)


def symmetric_noise(rate: float, clients: Clients = None, val: bool = False) -> Transform:
    """Training labels: each other class with probability ``rate`` / (C − 1).

    Validation labels stay clean, which real ones would not, unless ``val=true``.
    """

    def other(y: Tensor, key: Tensor, C: int) -> Tensor:
        return (y + 1 + rng.randint(key, C - 1, y.shape[1:])) % C

    return _noise("symmetric-noise", rate, clients, val, other)


TRANSFORMS: dict[str, Callable[..., Transform]] = {
    "rotate": rotate,
    "invert": invert,
    "contrast": contrast,
    "pixel-noise": pixel_noise,
    "thicken": thicken,
    "resize": resize,
    "normalise": normalise,
    "own-classes": own_classes,
    "pair-noise": pair_noise,
    "symmetric-noise": symmetric_noise,
}


def parse(spec: str) -> Transform:
    """The transform of a spec."""
    return replace(build("transform", TRANSFORMS, spec), spec=spec)


def apply(data: UnsplitData, transforms: Iterable[str | Transform]) -> UnsplitData:
    """Apply the transforms one after the other, and record each in ``describe``."""
    if isinstance(transforms, str | Transform):
        transforms = [transforms]
    given = list(transforms) if isinstance(transforms, Iterable) else [transforms]
    if not all(isinstance(each, str | Transform) for each in given):
        raise GlocalError(
            f"transforms={shown(transforms)} should be a list of texts, such as "
            "['rotate(90, clients=5)']."
        )
    for each in given:
        transform = parse(each) if isinstance(each, str) else each
        applied = [*data.describe.get("transforms", []), transform.spec]
        changed = transform.apply(data)
        if not transform.alike and not _same_examples(data, changed):
            changed = replace(changed, label_shift_only=False)
        data = replace(changed, describe={**data.describe, "transforms": applied})
    return data


def _same_examples(before: UnsplitData, after: UnsplitData) -> bool:
    """Whether a transform left all clients' inputs and true labels as they were."""
    pairs = ((before.x, after.x), (before.y, after.y), (before.rows.rows, after.rows.rows))
    return all(one is other or torch.equal(one, other) for one, other in pairs)


def chosen(clients: Clients, names: Sequence[str], seed: int) -> list[int]:
    """The indices of the clients that ``clients`` stands for, ascending."""
    K = len(names)
    if clients is None:
        return list(range(K))
    if isinstance(clients, Call):
        if clients.name != "only" or clients.kwargs:
            raise GlocalError(
                "clients= takes a number, a share, or only(…) with indices and names."
            )
        if not clients.args:
            raise GlocalError("clients=only() names no client: give indices or names.")
        clients = [v if isinstance(v, int) else str(v) for v in clients.args]
    if isinstance(clients, str):
        clients = [clients]
    if isinstance(clients, int | float):
        if isinstance(clients, float):
            if not 0 < clients <= 1:
                raise GlocalError(f"clients={clients} should be a share in (0, 1] or an integer.")
            clients = max(1, round(clients * K))
        count = integer(clients, "clients=", 1, K)
        return sorted(rng.permutation(keyed(seed, "transformed clients"), K)[:count].tolist())
    index = {name: k for k, name in enumerate(names)}
    indices = set()
    for client in clients:
        if isinstance(client, str):
            if client not in index:
                raise unknown("client", client, names)
            indices.add(index[client])
        else:
            indices.add(integer(client, "the index of a client", 0, K - 1))
    return sorted(indices)


def _rows(data: UnsplitData, clients: Clients) -> Tensor:
    """The rows of the chosen clients."""
    return torch.cat([data.rows.of(k) for k in chosen(clients, data.names, data.seed)])


def _drawn_by(data: UnsplitData, rows: Tensor) -> Tensor:
    """What the draws of rows are keyed by: not by the order of a table's rows."""
    return rows if data.rank is None else data.rank[rows]


def _style(
    name: str,
    value: float | None,
    clients: Clients,
    change: Callable[[Tensor, Tensor, UnsplitData], Tensor],
) -> Transform:
    """Images in another style, in training, validation and test: ``change(x, rows, data)``."""

    def apply(data: UnsplitData) -> UnsplitData:
        check_images(name, data.x)
        rows = _rows(data, clients)
        x = data.x.clone()
        x[rows] = change(x[rows], rows, data)
        return replace(data, x=x)

    return Transform(_spell(name, value, clients), apply, alike=clients is None)


def _noise(
    name: str,
    rate: float,
    clients: Clients,
    val: bool,
    flip: Callable[[Tensor, Tensor, int], Tensor],
) -> Transform:
    """Flip training labels with probability ``rate``, and with ``val`` validation labels, too.

    The draw is keyed by row, so a row has the same noise in every fold that trains on it, and rows
    flipped at one rate are among those flipped at a higher one.
    """
    if not 0 <= real(rate, "the rate") <= 1:
        raise GlocalError(f"the rate of {name} should be from 0 to 1, not {rate!r}.")
    check("val", val, bool)

    def apply(data: UnsplitData) -> UnsplitData:
        rows = _rows(data, clients)
        y = data.y_train[rows]
        # The same noise twice is two draws, so the position in the list is part of the key.
        position = len(data.describe.get("transforms", []))
        key = rng.fold(keyed(data.seed, f"{name} {position}"), _drawn_by(data, rows))
        flipped = rng.uniform(rng.fold(key, 0), y.shape[1:]) < rate
        y_train = data.y_train.clone()
        y_train[rows] = torch.where(flipped, flip(y, rng.fold(key, 1), data.classes), y)
        if not val:
            return replace(data, y_train=y_train)
        y_val = (data.y if data.y_val is None else data.y_val).clone()
        y_val[rows] = y_train[rows]
        return replace(data, y_train=y_train, y_val=y_val)

    return Transform(_spell(name, rate, clients, ", val=true" if val else ""), apply)


def _spell(name: str, value: float | None, clients: Clients, more: str = "") -> str:
    inside = ("" if value is None else f", {value:g}") + _whose(clients) + more
    return f"{name}({inside.removeprefix(', ')})"


def _whose(clients: Clients) -> str:
    """The clients of a transform, as its spec has them."""
    if isinstance(clients, Sequence) and not isinstance(clients, str):
        clients = f"only({', '.join(str(c) for c in clients)})"
    return "" if clients is None else f", clients={clients}"
