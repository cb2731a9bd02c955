"""Changes to the data of chosen clients: rotated images, noisy labels.

A transform is spelt ``"rotate(90, clients=5)"`` or made by a function of that name. ``clients`` is

- an integer: that many clients, drawn by the seed. All transforms draw from one order, so
  fewer clients are always among more;
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
from glocal.core.spec import Call, parse_call
from glocal.core.validation import check_call, integer, real
from glocal.data.split import keyed
from glocal.data.unsplit import UnsplitData

Who = int | float | str | Call | Sequence[int | str] | None
"""Which clients."""


@dataclass(frozen=True)
class Transform:
    """A change to a federation that is not cut yet, and how it is spelt."""

    spec: str
    apply: Callable[[UnsplitData], UnsplitData]


def rotate(degrees: float, clients: Who = None) -> Transform:
    """Images turned anticlockwise, in training, validation and test alike.

    Multiples of 90° are exact; other angles are bilinear, with zeros where the corners were. Those
    clients' inputs now differ, so the pooled test set is no longer a valid judge.
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
        x[rows] = turned(x[rows], angle)
        return replace(data, x=x, label_shift_only=False)

    return Transform(_spell("rotate", degrees, clients), apply)


def turned(x: Tensor, angle: float) -> Tensor:
    """Images turned anticlockwise by an angle in degrees."""
    if angle % 90 == 0:
        return torch.rot90(x, int(angle // 90), (-2, -1))
    images = x if x.dim() == 4 else x[:, None]
    # The grid says where each target pixel comes from, with y downwards: the inverse turn.
    a = torch.deg2rad(torch.tensor(angle, dtype=torch.float64)).to(x)
    zero = torch.zeros_like(a)
    matrix = torch.stack([a.cos(), -a.sin(), zero, a.sin(), a.cos(), zero]).view(1, 2, 3)
    grid = affine_grid(matrix.expand(len(x), 2, 3), list(images.shape), align_corners=False)
    return grid_sample(images, grid, align_corners=False).view_as(x)


def pair_noise(rate: float, clients: Who = None) -> Transform:
    """Training labels: class c becomes c+1 (the last becomes 0) with probability ``rate``."""
    return _noise("pair-noise", rate, clients, lambda y, key, C: (y + 1) % C)


def symmetric_noise(rate: float, clients: Who = None) -> Transform:
    """Training labels: each other class with probability ``rate`` / (C − 1)."""

    def other(y: Tensor, key: Tensor, C: int) -> Tensor:
        return (y + 1 + rng.randint(key, C - 1, y.shape[1:])) % C

    return _noise("symmetric-noise", rate, clients, other)


TRANSFORMS: dict[str, Callable[..., Transform]] = {
    "rotate": rotate,
    "pair-noise": pair_noise,
    "symmetric-noise": symmetric_noise,
}


def parse(spec: str) -> Transform:
    """The transform that a spec spells."""
    name, args, kwargs = parse_call(spec)
    if name not in TRANSFORMS:
        raise unknown("transform", name, TRANSFORMS)
    check_call(name, TRANSFORMS[name], args, kwargs)
    return replace(TRANSFORMS[name](*args, **kwargs), spec=spec)


def apply(data: UnsplitData, changes: Iterable[str | Transform]) -> UnsplitData:
    """One transform after the other, each recorded in ``describe``."""
    if isinstance(changes, str | Transform):
        changes = [changes]
    given = list(changes) if isinstance(changes, Iterable) else [changes]
    if not all(isinstance(change, str | Transform) for change in given):
        raise GlocalError(
            f"transforms={shown(changes)} should be a list of texts, such as "
            "['rotate(90, clients=5)']."
        )
    for change in given:
        made = parse(change) if isinstance(change, str) else change
        done = [*data.describe.get("transforms", []), made.spec]
        data = replace(made.apply(data), describe={**data.describe, "transforms": done})
    return data


def chosen(who: Who, names: Sequence[str], seed: int) -> list[int]:
    """The indices of the clients that ``who`` means, ascending."""
    K = len(names)
    if who is None:
        return list(range(K))
    if isinstance(who, Call):
        if who.name != "only" or who.kwargs:
            raise GlocalError(
                "clients= takes a number, a share, or only(…) with indices and names."
            )
        if not who.args:
            raise GlocalError("clients=only() names nobody: give indices or names.")
        who = [v if isinstance(v, int) else str(v) for v in who.args]
    if isinstance(who, str):
        who = [who]
    if isinstance(who, int | float):
        if isinstance(who, float):
            if not 0 < who <= 1:
                raise GlocalError(f"clients={who} should be a share in (0, 1] or an integer.")
            who = max(1, round(who * K))
        count = integer(who, "clients=", 1, K)
        return sorted(rng.permutation(keyed(seed, "transformed clients"), K)[:count].tolist())
    index = {name: k for k, name in enumerate(names)}
    out = set()
    for one in who:
        if isinstance(one, str):
            if one not in index:
                raise unknown("client", one, names)
            out.add(index[one])
        else:
            out.add(integer(one, "the index of a client", 0, K - 1))
    return sorted(out)


def _rows(data: UnsplitData, who: Who) -> Tensor:
    """The rows of the chosen clients."""
    return torch.cat([data.rows.of(k) for k in chosen(who, data.names, data.seed)])


def _noise(
    name: str, rate: float, clients: Who, flip: Callable[[Tensor, Tensor, int], Tensor]
) -> Transform:
    """Labels as training sees them, flipped with probability ``rate``.

    The draw is keyed by row, so a row has the same noise in every fold that trains on it, and rows
    flipped at one rate are among those flipped at a higher one.
    """
    if not 0 <= real(rate, "the rate") <= 1:
        raise GlocalError(f"the rate of {name} should be from 0 to 1, not {rate!r}.")

    def apply(data: UnsplitData) -> UnsplitData:
        rows = _rows(data, clients)
        y = data.seen[rows]
        # Noise of one kind twice is two draws, so the place in the list is part of the key.
        place = len(data.describe.get("transforms", []))
        key = rng.fold(keyed(data.seed, f"{name} {place}"), rows)
        flipped = rng.uniform(rng.fold(key, 0), y.shape[1:]) < rate
        seen = data.seen.clone()
        seen[rows] = torch.where(flipped, flip(y, rng.fold(key, 1), data.classes), y)
        return replace(data, seen=seen)

    return Transform(_spell(name, rate, clients), apply)


def _spell(name: str, value: float, clients: Who) -> str:
    if isinstance(clients, Sequence) and not isinstance(clients, str):
        clients = f"only({', '.join(str(c) for c in clients)})"
    return f"{name}({value:g})" if clients is None else f"{name}({value:g}, clients={clients})"
