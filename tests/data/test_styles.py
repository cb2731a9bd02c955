"""Other styles and classes of one's own: what is changed, whose it is, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.data.federation import Federation, federation

K, C = 6, 5


def make(transforms: Sequence[str] = (), n: int = 300, **more: Any) -> Federation:
    x = torch.rand(n, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    return federation(x, torch.arange(n) % C, K, partition="iid", transforms=transforms, **more)


def labels(fed: Federation, k: int) -> set[int]:
    return {int(c) for split in (fed.train, fed.val, fed.test) for c in fed.y[split.of(k)]}


def rows(fed: Federation) -> list[int]:
    return sorted(int(r) for split in (fed.train, fed.val, fed.test) for r in split.rows)


@pytest.mark.parametrize("spec", ["invert", "contrast(0.5)", "pixel-noise(0.1)", "thicken"])
def test_a_style_is_of_the_chosen_clients(spec: str) -> None:
    name, _, inside = spec.rstrip(")").partition("(")
    mine = ", ".join(part for part in (inside, "clients=only(1, 4)") if part)
    base, fed = make(), make([f"{name}({mine})"])
    for k in range(K):
        for split in ("train", "val", "test"):
            before, after = (getattr(f[k], split)[0] for f in (base, fed))
            assert torch.equal(before, after) == (k not in (1, 4))
    assert base.label_shift_only
    assert not fed.label_shift_only
    assert make([spec]).label_shift_only  # all clients alike


def test_by_hand() -> None:
    image = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.25], [0.0, 0.0, 0.0]]).expand(20, 3, 3)

    def changed(spec: str) -> list[list[float]]:
        fed = federation(image, torch.arange(20) % 2, 2, partition="iid", transforms=[spec])
        first: Tensor = fed.x[0]
        return first.tolist()

    assert changed("invert")[1] == [1.0, 0.0, 0.75]
    assert changed("contrast(0.5)")[1] == [0.25, 0.75, 0.375]
    assert changed("contrast(0)")[1] == [0.5] * 3
    assert changed("thicken(3)") == [[1.0, 1.0, 1.0]] * 3
    assert changed("thicken(2)") == [[1.0, 1.0, 0.25], [1.0, 1.0, 0.25], [0.0, 0.0, 0.0]]
    assert changed("thicken(1)") == image[0].tolist()
    assert changed("invert(clients=only(0, 1))")[1] == [1.0, 0.0, 0.75]


def test_noise_of_pixels_has_its_spread() -> None:
    base, fed = make(n=2000), make(["pixel-noise(0.2)"], n=2000)
    noise = (fed.x - base.x) / (base.x.max() - base.x.min())
    assert abs(float(noise.std()) - 0.2) < 0.005
    assert abs(float(noise.mean())) < 0.005
    assert torch.equal(fed.x, make(["pixel-noise(0.2)"], n=2000).x)
    assert not torch.equal(fed.x, make(["pixel-noise(0.2)"], n=2000, seed=1).x)


def test_classes_of_ones_own() -> None:
    """Nobody else has them, nobody else's are lost, and hands are full to one example."""
    base, fed = make(), make(["own-classes(3, 4, clients=only(0, 5))"])
    for k in range(K):
        assert labels(fed, k) == ({3, 4} if k in (0, 5) else {0, 1, 2})
    assert rows(fed) == rows(base)
    sizes = [len(fed.train.of(k)) + len(fed.val.of(k)) + len(fed.test.of(k)) for k in range(K)]
    assert sizes[0] == pytest.approx(sizes[5], abs=8)  # what changed hands is halved
    assert torch.equal(fed.x, base.x)
    assert fed.label_shift_only
    assert fed.describe["transforms"] == ["own-classes(3, 4, clients=only(0, 5))"]


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("own-classes(5, clients=1)", "a class of own-classes must be an integer from 0 to 4"),
        ("own-classes(clients=1)", "names no class"),
        ("own-classes(1, clients=6)", "leaves nobody without these classes"),
        ("own-classes(0, 1, 2, 3, 4, clients=1)", "leaves client"),
        ("own-classes(1)", "clients"),
        ("contrast(-1)", "must be 0 or more"),
        ("pixel-noise(-1)", "must be 0 or more"),
        ("thicken(0)", "must be an integer from 1 to 15"),
    ],
)
def test_what_is_refused(spec: str, sentence: str) -> None:
    with pytest.raises(GlocalError, match=sentence):
        make([spec])


def test_styles_are_of_images() -> None:
    x, y = torch.rand(60, 3), torch.arange(60) % 2
    with pytest.raises(GlocalError, match="invert needs images"):
        federation(x, y, 2, partition="iid", transforms=["invert"])
    numbers = torch.rand(60)
    with pytest.raises(GlocalError, match="own-classes needs one class"):
        federation(
            x,
            numbers,
            2,
            partition="iid",
            task="regression",
            transforms=["own-classes(0, clients=1)"],
        )
