"""Transforms: rotations are exact and local to their clients, noise has its rate in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from glocal.core.errors import GlocalError
from glocal.core.spec import parse_call
from glocal.data.federation import Federation, federation
from glocal.data.split import UnsplitData
from glocal.data.transforms import Transform, chosen, pair_noise, rotate, rotated, symmetric_noise

K, C = 6, 5


def make(transforms: Sequence[str | Transform] = (), n: int = 600, **more: Any) -> Federation:
    x = torch.rand(n, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    return federation(x, torch.arange(n) % C, K, partition="iid", transforms=transforms, **more)


def rows(fed: Federation, k: int) -> torch.Tensor:
    return torch.cat([s.of(k) for s in (fed.train, fed.val, fed.test)])


def test_four_quarter_turns_are_none() -> None:
    base, turned_fed = make(), make(["rotate(90)"] * 4)
    assert torch.equal(base.x, turned_fed.x)
    assert turned_fed.describe["transforms"] == ["rotate(90)"] * 4


def test_rotation_is_of_the_chosen_clients_in_all_splits() -> None:
    base, fed = make(), make(["rotate(90, clients=only(1, 4))"])
    for k in range(K):
        for before, after in (
            (base[k].train, fed[k].train),
            (base[k].val, fed[k].val),
            (base[k].test, fed[k].test),
        ):
            want = torch.rot90(before[0], 1, (-2, -1)) if k in (1, 4) else before[0]
            assert torch.equal(after[0], want)
            assert torch.equal(after[1], before[1])
    assert base.label_shift_only
    assert not fed.label_shift_only


def test_rotation_by_hand() -> None:
    """Anticlockwise: what was on the right is on top."""
    image = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    assert rotated(image, 90).tolist() == [[[2.0, 4.0], [1.0, 3.0]]]


@pytest.mark.parametrize("angle", [90.0, 180.0, 270.0])
def test_interpolation_turns_the_same_way_as_exact_quarters(angle: float) -> None:
    x = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    near = rotated(x, angle + 1e-4)
    assert torch.allclose(near, rotated(x, angle), atol=1e-3)


def test_interpolated_there_and_back_is_near_in_the_middle() -> None:
    ramp = torch.linspace(0, 1, 16).expand(1, 16, 16)
    back = rotated(rotated(ramp, 30.0), 330.0)
    assert (back - ramp)[:, 5:11, 5:11].abs().max() < 0.02


@pytest.mark.parametrize(
    ("spec", "rate", "to_next"),
    [("pair-noise(0.4)", 0.4, 0.4), ("symmetric-noise(0.6)", 0.6, 0.6 / (C - 1))],
)
def test_noise_has_its_rate_in_training_only(spec: str, rate: float, to_next: float) -> None:
    fed = make([spec], n=20_000)
    y, seen = fed.y[fed.train.rows], fed.y_train[fed.train.rows]
    # Five standard deviations of 14,000 draws are about .02.
    assert float((y != seen).float().mean()) == pytest.approx(rate, abs=0.02)
    for step in range(1, C):
        share = float(((seen - y) % C == step).float().mean())
        expected = to_next if step == 1 or spec.startswith("symmetric") else 0.0
        assert share == pytest.approx(expected, abs=0.02)
    assert torch.equal(fed.y_train[fed.test.rows], fed.y[fed.test.rows])
    assert torch.equal(fed.y, make(n=20_000).y)
    assert fed.label_shift_only


def test_validation_labels_are_noisy_where_asked_for() -> None:
    spec = "pair-noise(0.5, clients=only(0, 1), val=true)"
    fed, clean = make([spec, "symmetric-noise(0.2)"], n=6000), make(n=6000)
    assert pair_noise(0.5, [0, 1], val=True).spec == spec
    for k in range(K):
        val, test = fed.val.of(k), fed.test.of(k)
        step = (fed.y[val] - clean.y[val]) % C
        assert set(step.tolist()) == ({0, 1} if k < 2 else {0})
        assert torch.equal(fed[k].val[1], fed.y[val])
        assert torch.equal(fed.y[test], clean.y[test])
    assert torch.equal(fed.y[fed.train.rows], clean.y[fed.train.rows])
    # Trained on, a validation row has the noise of all transforms; a row has one noise.
    once = make([spec], n=6000)
    assert torch.equal(once.y_train[once.val.rows], once.y[once.val.rows])
    with pytest.raises(GlocalError, match="val must be true or false"):
        make([pair_noise(0.5, val=2)])  # type: ignore[arg-type]


def test_own_transforms_that_change_inputs_end_pooling() -> None:
    def inverted(data: UnsplitData) -> UnsplitData:
        x = data.x.clone()
        x[data.rows.of(0)] = 1 - x[data.rows.of(0)]
        return replace(data, x=x)

    def renamed(data: UnsplitData) -> UnsplitData:
        return replace(data, names=tuple(f"client {name}" for name in data.names))

    assert not make([Transform("inverted", inverted)]).label_shift_only
    assert make([Transform("renamed", renamed)]).label_shift_only
    relabelled = Transform("next", lambda data: replace(data, y=(data.y + 1) % C))
    assert not make([relabelled]).label_shift_only
    everybody = Transform("inverted", lambda data: replace(data, x=1 - data.x), alike=True)
    assert make([everybody]).label_shift_only
    assert make(["rotate(90)"]).label_shift_only  # all clients alike


def test_noise_follows_the_fold() -> None:
    fed = make(["pair-noise(1)"]).fold(3)
    for client in fed:
        assert set(torch.unique(client.train[1]).tolist()) == set(range(C))
    assert torch.equal(fed.y_train[fed.train.rows], (fed.y[fed.train.rows] + 1) % C)
    assert torch.equal(fed.y_train[fed.test.rows], fed.y[fed.test.rows])
    assert torch.equal(fed[2].test[1], fed.y[fed.test.of(2)])


def test_noise_is_of_the_chosen_clients_and_seeded() -> None:
    fed = make(["symmetric-noise(0.5, clients=2)"], seed=1)
    noisy = [k for k in range(K) if not torch.equal(fed.y_train[rows(fed, k)], fed.y[rows(fed, k)])]
    assert len(noisy) == 2
    again = make([symmetric_noise(0.5, clients=2)], seed=1)
    assert torch.equal(again.y_train, fed.y_train)
    assert again.describe["transforms"] == ["symmetric-noise(0.5, clients=2)"]
    other = make(["symmetric-noise(0.5, clients=2)"], seed=2)
    assert not torch.equal(other.y_train, fed.y_train)


def test_noise_twice_is_two_draws() -> None:
    fed = make(["pair-noise(0.5)", "pair-noise(0.5)"], n=20_000)
    step = (fed.y_train - fed.y)[fed.train.rows] % C
    shares = torch.bincount(step, minlength=3) / len(step)
    assert shares[:3].tolist() == pytest.approx([0.25, 0.5, 0.25], abs=0.02)


def test_noise_on_sequences() -> None:
    y = torch.arange(600).reshape(60, 10) % 3
    fed = federation(
        torch.zeros(60, 10).long(), y, 2, partition="iid", transforms=["symmetric-noise(.5)"]
    )
    changed = (fed.y_train != fed.y)[fed.train.rows]
    assert float(changed.float().mean()) == pytest.approx(0.5, abs=0.12)
    assert 0 < int(changed.all(1).sum() + (~changed).all(1).sum()) + 1 < 5


def test_rates_of_none_and_all() -> None:
    assert torch.equal(make([pair_noise(0)]).y_train, make().y)
    fed = make([symmetric_noise(1.0)])
    assert (fed.y_train != fed.y)[fed.train.rows].all()


def test_choosing_clients() -> None:
    names = ("a", "b", "c", "7")
    assert chosen(None, names, 0) == [0, 1, 2, 3]
    assert len(chosen(2, names, 0)) == 2
    assert set(chosen(1, names, 0)) < set(chosen(2, names, 0)) < set(chosen(3, names, 0))
    assert {tuple(chosen(1, names, seed)) for seed in range(40)} == {(0,), (1,), (2,), (3,)}
    assert chosen(0.5, names, 3) == chosen(2, names, 3)
    assert chosen(0.01, names, 3) == chosen(1, names, 3)
    assert chosen(1.0, names, 3) == [0, 1, 2, 3]
    assert chosen([3, "a"], names, 0) == [0, 3]
    assert chosen("b", names, 0) == [1]
    assert chosen(["7"], names, 0) == [3]
    _, args, _ = parse_call("pick(only(0, c))")
    assert chosen(args[0], names, 0) == [0, 2]


def test_how_they_are_recorded() -> None:
    assert rotate(90).spec == "rotate(90)"
    assert rotate(12.5, clients=[0, "b"]).spec == "rotate(12.5, clients=only(0, b))"
    assert make([rotate(90, clients="3")]).describe["transforms"] == ["rotate(90, clients=3)"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("rotat(90)", "unknown transform 'rotat': did you mean 'rotate'"),
        ("rotate", "rotate needs degrees: write rotate.degrees=0.5."),
        ("rotate(x)", "in rotate, degrees must be a number"),
        ("pair-noise(1.5)", "rate of pair-noise should be from 0 to 1, not 1.5"),
        ("symmetric-noise(-0.1)", "should be from 0 to 1"),
        ("pair-noise(0.1, clients=7)", "clients= must be an integer from 1 to 6, not 7"),
        ("pair-noise(0.1, clients=0)", "from 1 to 6"),
        ("pair-noise(0.1, clients=1.5)", r"a share in \(0, 1\] or an integer"),
        ("pair-noise(0.1, clients=only(6))", "the index of a client must be .* from 0 to 5"),
        ("pair-noise(0.1, clients=berlin)", "unknown client 'berlin'"),
        ("pair-noise(0.1, clients=last(2))", "takes a number, a share, or only"),
    ],
)
def test_bad_specs_say_what_to_write(spec: str, message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        make([spec])


def test_rotate_needs_square_images() -> None:
    y = torch.arange(60) % 2
    with pytest.raises(GlocalError, match="needs images"):
        federation(torch.zeros(60, 4), y, 2, partition="iid", transforms=["rotate(90)"])
    wide = torch.rand(60, 2, 4)
    with pytest.raises(GlocalError, match="square images"):
        federation(wide, y, 2, partition="iid", transforms=["rotate(90)"])
    fed = federation(wide, y, 2, partition="iid", transforms=["rotate(180)"])
    assert torch.equal(fed.x, wide.flip(-1, -2))
