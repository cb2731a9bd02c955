"""Self-supervised auxiliary models: they predict from h what was done to the inputs.

Liang et al.: *Think locally, act globally*, 2020, figure 1 (c). The changed inputs, and what there
is to predict of them, are drawn anew from the key of each step. They go through the private layers
in a pass of their own, so a step takes two gradients of each example; the model's own loss is that
of the inputs as they are.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.core.padding import PAD
from glocal.core.types import Batch, Params
from glocal.core.validation import integer, real
from glocal.nn.augment import turned
from glocal.nn.dense import dense, dense_init
from glocal.nn.losses import cross_entropy
from glocal.nn.task import Task, weighted_mean
from glocal.slots.auxiliaries import PREFIX, network, shared_settings
from glocal.slots.auxiliary import Auxiliary, Dimensions

QUARTERS = 4


def rotation(
    weight: float = 0.1, *, hidden: int = 64, rate: float = 1.0, at: str | None = None
) -> Auxiliary:
    """A model of the client's own that tells by how many quarters an image was turned.

    Gidaris, Singh, Komodakis: *Unsupervised representation learning by predicting image rotations*,
    ICLR 2018. Departure: each image is turned once, by 0, 90, 180 or 270 degrees, not all ways.

    It helps, if at all, where a client has many images and few labels. It does not help to any
    purpose where all have labels: on digits a quarter of a point at a small weight, and a loss at a
    large one.

    Settings as of :func:`~glocal.slots.auxiliaries.aux_head`.
    """
    how = shared_settings(hidden, weight, rate, at)

    def check(dims: Dimensions) -> None:
        _, height, width = _image(dims, "rotation")
        if height != width:
            raise GlocalError(
                f"rotation needs square images, not {height}×{width}: pad them, or use jigsaw."
            )

    def view(batch: Batch, key: Tensor, dims: Dimensions) -> Batch:
        turns = rng.randint(key, QUARTERS, (len(batch["x"]),))
        return {**batch, "x": turned(batch["x"], turns), "made": turns}

    return _telling("rotation", QUARTERS, hidden, view=view, check=check, **how)


def jigsaw(  # noqa: D417
    weight: float = 0.1,
    *,
    grid: int = 2,
    permutations: int = 8,
    hidden: int = 64,
    rate: float = 1.0,
    at: str | None = None,
) -> Auxiliary:
    """A model of the client's own that tells in which order the tiles of an image were put.

    Noroozi, Favaro: *Unsupervised learning of visual representations by solving jigsaw puzzles*,
    ECCV 2016. Departures: the shuffled tiles are put together and read as one image; the orders are
    evenly spaced among all in lexicographic order, the right one among them, instead of chosen to
    be far apart.

    It helps, if at all, where a client has many images and few labels. It does not help to any
    purpose where all have labels: on digits nothing was gained, and a weight of 1 lost a point.

    Args:
        grid: tiles along a side.
        permutations: how many orders of the tiles there are.

    Other settings as of :func:`~glocal.slots.auxiliaries.aux_head`.
    """
    how = shared_settings(hidden, weight, rate, at)
    integer(grid, "grid", 2, 4)
    integer(permutations, "permutations", 2, min(1000, math.factorial(grid**2)))

    def check(dims: Dimensions) -> None:
        _, height, width = _image(dims, "jigsaw")
        if height % grid or width % grid:
            raise GlocalError(
                f"jigsaw cuts images into {grid}×{grid} tiles, which {height}×{width} cannot be: "
                "give another grid=, or pad them."
            )

    def view(batch: Batch, key: Tensor, dims: Dimensions) -> Batch:
        which = rng.randint(key, permutations, (len(batch["x"]),))
        order = permutation_number(which * (math.factorial(grid**2) // permutations), grid**2)
        return {**batch, "x": shuffled(batch["x"], order, grid), "made": which}

    return _telling("jigsaw", permutations, hidden, view=view, check=check, **how)


def masked_tokens(  # noqa: D417
    weight: float = 0.1,
    *,
    share: float = 0.15,
    hidden: int = 64,
    rate: float = 1.0,
    at: str | None = None,
) -> Auxiliary:
    """A model of the client's own that tells which tokens were replaced by others at random.

    After Devlin, Chang, Lee, Toutanova: *BERT: pre-training of deep bidirectional transformers for
    language understanding*, NAACL 2019. Departure: a token is masked by one that is drawn from the
    vocabulary, since models have none that means a gap. Where the representation has a vector for
    each position, it is read there; where there is one for the whole text, it is read together with
    a vector that the auxiliary learns for each position.

    It helps, if at all, where a client has much text and few labels, which was not measured here.
    It does not help where the private layers read one token alone: there is nothing to tell it
    from.

    Args:
        share: share of the tokens that is replaced and predicted.

    Other settings as of :func:`~glocal.slots.auxiliaries.aux_head`.
    """
    how = shared_settings(hidden, weight, rate, at)
    if not 0 < real(share, "share") < 1:
        raise GlocalError(f"masked-tokens' share must be between 0 and 1, not {share}.")

    def check(dims: Dimensions) -> None:
        if not dims.schema.tokens:
            raise GlocalError(
                "masked-tokens predicts tokens, and inputs are numbers here: use autoencoder, or "
                "for images rotation or jigsaw."
            )
        if dims.vocabulary < 2:
            raise GlocalError(
                "masked-tokens needs a model with an nn.Embedding of two tokens or more, which "
                "this one lacks: use aux-head."
            )
        if not hidden and not _by_position(dims):
            raise GlocalError(
                "the representation has one vector for a whole text, which masked-tokens reads "
                "through a hidden layer: give hidden=64, say."
            )

    def view(batch: Batch, key: Tensor, dims: Dimensions) -> Batch:
        x = batch["x"]
        drawn_at = rng.uniform(rng.fold(key, 0), tuple(x.shape)) < share
        replaced = drawn_at & (x != PAD)  # padding is no token to predict
        words = dims.vocabulary - 1  # all but the token of padding, which comes first
        drawn = 1 + rng.randint(rng.fold(key, 1), words, tuple(x.shape)).to(x.dtype)
        return {**batch, "x": torch.where(replaced, drawn, x), "made": x, "replaced": replaced}

    def init(key: Tensor, dims: Dimensions) -> Params:
        if _by_position(dims):
            return network(key, dims.h[-1], hidden, dims.vocabulary)
        positions = rng.normal(rng.fold(key, 0), (dims.schema.shape[0], hidden))
        return {
            **dense_init(rng.fold(key, 1), [math.prod(dims.h), hidden], f"{PREFIX}.text"),
            f"{PREFIX}.positions": positions,
            **dense_init(rng.fold(key, 2), [hidden, dims.vocabulary], f"{PREFIX}.token"),
        }

    def loss(task: Task, a: Params, h: Tensor, batch: Batch, key: Tensor) -> Tensor:
        if f"{PREFIX}.positions" in a:
            text = dense(a, h.flatten(1), f"{PREFIX}.text").unsqueeze(1)
            at_position = functional.relu(text + a[f"{PREFIX}.positions"])
            logits = dense(a, at_position, f"{PREFIX}.token")
        else:
            logits = dense(a, h, PREFIX)
        target = batch["made"].to(torch.int64)
        each = functional.cross_entropy(logits.transpose(1, 2), target, reduction="none")
        return weighted_mean(each, batch["replaced"] * batch["weight"].unsqueeze(1))

    return Auxiliary(name="masked-tokens", init=init, loss=loss, view=view, check=check, **how)


def permutation_number(number: Tensor, n: int) -> Tensor:
    """[…, n]: the permutations of ``range(n)`` that come at these places in lexicographic order.

    The digits of a number in the factorial system say which of the values that are left comes next.
    """
    places = [(number // math.factorial(n - 1 - j)) % (n - j) for j in range(n)]
    for j in reversed(range(n - 1)):
        for k in range(j + 1, n):
            places[k] = places[k] + (places[k] >= places[j])
    return torch.stack(places, -1)


def shuffled(x: Tensor, order: Tensor, grid: int) -> Tensor:
    """Images whose tile ``i`` (row by row) is the tile ``order[i]`` of before."""
    batch, channels, height, width = x.shape
    h, w = height // grid, width // grid
    tiles = x.reshape(batch, channels, grid, h, grid, w).permute(0, 2, 4, 1, 3, 5)
    tiles = tiles.reshape(batch, grid**2, channels * h * w)
    chosen = tiles.gather(1, order.unsqueeze(-1).expand(tiles.shape))
    chosen = chosen.reshape(batch, grid, grid, channels, h, w).permute(0, 3, 1, 4, 2, 5)
    return chosen.reshape(x.shape)


def _by_position(dims: Dimensions) -> bool:
    return len(dims.h) == 2 and dims.h[0] == dims.schema.shape[0]


def _image(dims: Dimensions, name: str) -> tuple[int, ...]:
    if not dims.schema.images or dims.schema.tokens:
        raise GlocalError(
            f"{name} needs images (channels, height, width), not inputs of shape "
            f"{dims.schema.shape}: use autoencoder, or for text masked-tokens."
        )
    return dims.schema.shape


def _telling(name: str, ways: int, hidden: int, **others: Any) -> Auxiliary:
    """The auxiliary that tells in which of so many ways the inputs were changed."""

    def init(key: Tensor, dims: Dimensions) -> Params:
        return network(key, math.prod(dims.h), hidden, ways)

    def loss(task: Task, a: Params, h: Tensor, batch: Batch, key: Tensor) -> Tensor:
        each = cross_entropy(dense(a, h.flatten(1), PREFIX), batch["made"])
        return weighted_mean(each, batch["weight"])

    return Auxiliary(name=name, init=init, loss=loss, **others)
