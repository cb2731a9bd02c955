"""The figures of made examples against brute force, and sets whose figures are known."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.evaluation import synthetic_data
from glocal.experiment import contact_sheet as sheet
from glocal.nn.task import Task
from toys import seeded


def net() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)))


def test_frechet_is_the_textbook_s() -> None:
    linalg = pytest.importorskip("scipy.linalg")
    a = rng.normal(rng.key(0), (40, 5)) @ rng.normal(rng.key(1), (5, 5)) + 1
    b = rng.normal(rng.key(2), (30, 5))
    ca, cb = torch.cov(a.double().T), torch.cov(b.double().T)
    root = torch.tensor(linalg.sqrtm((ca @ cb).numpy()).real)
    gap = (a.double().mean(0) - b.double().mean(0)).square().sum()
    want = float(gap + (ca + cb - 2 * root).trace())
    assert synthetic_data.frechet(a, b) == pytest.approx(want, rel=1e-6)
    assert synthetic_data.frechet(a, a) == pytest.approx(0, abs=1e-6)


def test_features_are_what_the_last_layer_reads() -> None:
    task, x = Task(net()), rng.normal(rng.key(0), (7, 2))
    w = task.init(rng.key(5))
    want = torch.tanh(x @ w["0.weight"].T + w["0.bias"])
    torch.testing.assert_close(synthetic_data.features(task, w, x), want)


class Odd(nn.Module):
    """The output layer first, and one that nobody calls last."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(8, 2)
        self.hidden = nn.Linear(2, 8)
        self.unused = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.out(torch.tanh(self.hidden(x)))
        return logits


def test_the_last_layer_is_the_one_that_is_called_last() -> None:
    task, x = Task(seeded(Odd)), rng.normal(rng.key(0), (7, 2))
    w = task.init(rng.key(5))
    want = torch.tanh(x @ w["hidden.weight"].T + w["hidden.bias"])
    torch.testing.assert_close(synthetic_data.features(task, w, x), want)


def test_a_classifier_learns_what_it_is_trained_on() -> None:
    x = rng.normal(rng.key(0), (60, 2))
    y = (x[:, 0] > 0).long()
    task = Task(net())
    learned = synthetic_data.train_classifier(task, x, y, rng.key(1), lr=0.01, enough=0.1)
    assert learned.converged
    assert learned.loss < 0.1
    assert learned.steps % 10 == 0
    assert learned.steps < synthetic_data.STEPS
    assert synthetic_data.accuracy(task, learned.w, x, y) >= 0.95
    assert synthetic_data.accuracy(task, learned.w, x, 1 - y) <= 0.05


def test_a_classifier_of_few_examples_gets_as_many_steps_as_one_of_many() -> None:
    """Three examples are a mini-batch: two hundred passes would be two hundred steps."""
    x, y = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), torch.tensor([0, 1, 1])
    learned = synthetic_data.train_classifier(Task(net()), x, y, rng.key(1))
    assert learned.converged
    assert 200 < learned.steps < synthetic_data.STEPS


def test_steps_that_are_used_up_are_said_to_be() -> None:
    x, y = torch.ones(130, 2), torch.arange(130) % 2
    learned = synthetic_data.train_classifier(Task(net()), x, y, rng.key(1), steps=20)
    assert not learned.converged
    assert learned.steps == 21  # whole passes, of three mini-batches each
    assert learned.loss == pytest.approx(0.69, abs=0.1)


def test_copies_are_noticed_and_strangers_are_not() -> None:
    trained, held, new = (rng.normal(rng.key(k), (300, 6)) for k in range(3))
    key = rng.key(9)
    copied = synthetic_data.nearness(trained[:50], trained, held, key)
    assert copied["nearer_to_trained"] == 1
    assert copied["copies"] == 50
    strange = synthetic_data.nearness(new, trained, held, key)
    assert 0.4 < strange["nearer_to_trained"] < 0.6
    assert strange["copies"] == 0
    assert (copied["copies_of_held_out"], copied["trained"], copied["held_out"]) == (0, 300, 300)
    assert synthetic_data.nearness(held[:20], trained, held, key)["copies_of_held_out"] == 20
    assert synthetic_data.membership(trained, trained, held)["auc"] == 1
    assert synthetic_data.membership(trained, trained, held)["advantage"] == 1
    assert 0.4 < synthetic_data.membership(new, trained, held)["auc"] < 0.6


def test_membership_is_a_count_of_pairs() -> None:
    trained, held = torch.tensor([[0.0], [3.0], [7.0]]), torch.tensor([[1.0], [5.0], [9.0], [3.0]])
    found = synthetic_data.membership(torch.zeros(1, 1), trained, held)
    # distances 0, 3, 7 against 1, 5, 9, 3: (4 + 2.5 + 1) of 12 pairs
    assert found["auc"] == pytest.approx(7.5 / 12)
    assert found["advantage"] == pytest.approx(1 / 3)
    assert found["tpr_at_1"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("seed", range(6))
def test_membership_is_a_sweep_of_thresholds_also_where_distances_tie(seed: int) -> None:
    values = rng.randint(rng.key(seed), 4, (90,)).float().unsqueeze(1)
    trained, held = values[:40], values[40:] + (seed % 2)
    found = synthetic_data.membership(torch.zeros(1, 1), trained, held)
    roc = [
        (float((trained <= t).float().mean()), float((held <= t).float().mean()))
        for t in np.arange(-0.5, 6, 0.5)
    ]
    assert found["advantage"] == pytest.approx(max(t - f for t, f in roc))
    assert found["tpr_at_1"] == pytest.approx(max(t for t, f in roc if f <= 0.01))


def test_small_pictures_are_enlarged_and_large_ones_are_not() -> None:
    x = torch.rand(3, 1, 8, 6)
    large = sheet.enlarged(x)
    assert large.shape == (3, 1, 24, 18)
    assert torch.equal(large[..., 1::3, 2::3], x)
    assert torch.equal(sheet.enlarged(large), large)


def test_a_contact_sheet_has_a_row_for_each_class(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    x = torch.arange(4).view(4, 1, 1, 1).expand(4, 1, 3, 5) / 3
    pixels = sheet.block(x, torch.tensor([0, 0, 1, 1]), 2, 2)
    assert pixels.shape == (2 * 3 + sheet.GAP, 2 * 5 + sheet.GAP)
    assert pixels[0, 0] == 0
    assert pixels[0, -1] == 85
    assert pixels[-1, 0] == 170
    assert pixels[3, 0] == 255
    wide = sheet.side_by_side([pixels, pixels])
    sheet.write_png(tmp_path / "s.png", wide)
    with image.open(tmp_path / "s.png") as read:
        assert torch.equal(torch.tensor(np.asarray(read)), wide)
    colour = sheet.block(x.expand(4, 3, 3, 5), torch.tensor([0, 0, 1, 1]), 2, 2)
    sheet.write_png(tmp_path / "c.png", colour)
    with image.open(tmp_path / "c.png") as read:
        assert read.mode == "RGB"
        assert read.getpixel((0, colour.shape[0] - 1)) == (170, 170, 170)
    with pytest.raises(GlocalError, match="no pictures"):
        sheet.block(torch.zeros(3, 6), torch.zeros(3), 1, 1)


def test_figures_go_into_json() -> None:
    x = rng.normal(rng.key(0), (20, 3))
    text = json.dumps(
        [synthetic_data.membership(x, x, x), synthetic_data.nearness(x, x, x, rng.key(0))]
    )
    assert not re.search("NaN|Infinity", text)
