"""Changes to the data of chosen clients: rotated images, noisy labels.

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
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from glocal.core import rng
from glocal.core.errors import GlocalError, shown, unknown
from glocal.core.spec import Call
from glocal.core.validation import build, check, integer, real
from glocal.data.split import UnsplitData, keyed

Clients = int | float | str | Call | Sequence[int | str] | None
"""The values of ``clients``."""


@dataclass(frozen=True)
class Transform:
    """A change to data that is not split yet, and its spec."""

    spec: str
    apply: Callable[[UnsplitData], UnsplitData]
    alike: bool = False
    """Whether it changes the inputs of all clients alike. Where it does not, and changes inputs or
    labels, clients no longer differ in label shares only (``label_shift_only``)."""


def rotate(degrees: float, clients: Clients = None) -> Transform:
    """Rotate images anticlockwise, in training, validation and test.

    Multiples of 90° are exact; other angles are bilinear, with zeros where the corners were. Unless
    all clients' are rotated, their inputs then differ, and test examples are not pooled.
    """
    angle = real(degrees, "the angle in degrees") % 360

    def apply(data: UnsplitData) -> UnsplitData:
        if data.x.dim() not in (3, 4) or not data.x.is_floating_point():
            raise GlocalError(
                f"rotate needs images [n, height, width] or [n, channels, height, width], not "
                f"{list(data.x.shape)} of {data.x.dtype}."
            )
        if angle % 180 and data.x.shape[-1] != data.x.shape[-2]:
            raise GlocalError("rotate needs square images, except by 180 degrees: pad them first.")
        rows = _rows(data, clients)
        x = data.x.clone()
        x[rows] = rotated(x[rows], angle)
        return replace(data, x=x)

    return Transform(_spell("rotate", degrees, clients), apply, alike=clients is None)


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
        drawn_by = rows if data.rank is None else data.rank[rows]
        key = rng.fold(keyed(data.seed, f"{name} {position}"), drawn_by)
        flipped = rng.uniform(rng.fold(key, 0), y.shape[1:]) < rate
        y_train = data.y_train.clone()
        y_train[rows] = torch.where(flipped, flip(y, rng.fold(key, 1), data.classes), y)
        if not val:
            return replace(data, y_train=y_train)
        y_val = (data.y if data.y_val is None else data.y_val).clone()
        y_val[rows] = y_train[rows]
        return replace(data, y_train=y_train, y_val=y_val)

    return Transform(_spell(name, rate, clients, ", val=true" if val else ""), apply)


def _spell(name: str, value: float, clients: Clients, more: str = "") -> str:
    if isinstance(clients, Sequence) and not isinstance(clients, str):
        clients = f"only({', '.join(str(c) for c in clients)})"
    chosen_clients = "" if clients is None else f", clients={clients}"
    return f"{name}({value:g}{chosen_clients}{more})"
