"""Crops, flips and turns: what each may do, that keys decide, and that padding does not matter."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from glocal.core import rng
from glocal.nn.augment import AUGMENTATIONS, chain, crop, flip, rotate
from glocal.nn.task import Augment

X = rng.normal(rng.key(0), (200, 2, 5, 5))
KEY = rng.key(1)


def versions(name: str, image: Tensor) -> list[Tensor]:
    """Everything an augmentation may make of an image."""
    if name == "flip":
        return [image, image.flip(-1)]
    if name == "rotate":
        return [torch.rot90(image, k, (-2, -1)) for k in range(4)]
    padded = torch.nn.functional.pad(image, (2, 2, 2, 2))
    return [padded[:, i : i + 5, j : j + 5] for i in range(5) for j in range(5)]


MADE: dict[str, Augment] = {"crop": crop(2), "flip": flip(), "rotate": rotate()}


@pytest.mark.parametrize("name", MADE)
def test_each_image_becomes_one_of_its_versions_and_all_of_them_occur(name: str) -> None:
    out = MADE[name](X, KEY)
    which = []
    for image, made in zip(X, out, strict=True):
        matches = [i for i, v in enumerate(versions(name, image)) if torch.equal(v, made)]
        assert len(matches) == 1
        which += matches
    counts = torch.bincount(torch.tensor(which), minlength=len(versions(name, X[0])))
    expected = len(X) / len(counts)
    assert float(((counts - expected) ** 2 / expected).sum()) < len(counts) + 6 * len(counts) ** 0.5


@pytest.mark.parametrize("name", [*MADE, "chain"])
def test_the_key_decides_and_padding_does_not(name: str) -> None:
    augment = MADE.get(name, chain(crop(1), flip(), rotate()))
    assert torch.equal(augment(X, KEY), augment(X, KEY))
    assert not torch.equal(augment(X, KEY), augment(X, rng.key(2)))
    assert torch.equal(augment(X, KEY)[:7], augment(X[:7], KEY))
    padded = torch.cat([X[:7], torch.zeros(3, 2, 5, 5)])
    assert torch.equal(augment(padded, KEY)[:7], augment(X[:7], KEY))


@pytest.mark.parametrize("name", [*MADE, "chain"])
def test_vectorised_over_clients(name: str) -> None:
    augment = MADE.get(name, chain(crop(1), flip(), rotate()))
    keys, x = rng.fold(KEY, torch.arange(4)), X[:40].view(4, 10, 2, 5, 5)
    looped = torch.stack([augment(a, k) for a, k in zip(x, keys, strict=True)])
    assert torch.equal(vmap(augment)(x, keys), looped)


def test_a_chain_gives_each_step_a_key_of_its_own() -> None:
    same = chain(flip(), flip())(X, KEY)
    twice = flip()(flip()(X, rng.fold(KEY, 0)), rng.fold(KEY, 1))
    assert torch.equal(same, twice)
    assert not torch.equal(same, X)


def test_no_padding_no_crop() -> None:
    assert torch.equal(crop(0)(X, KEY), X)
    assert sorted(AUGMENTATIONS) == list(AUGMENTATIONS)
