"""Poisoned data: flipped labels and backdoors, in training alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import glocal
import toys
from glocal.core.errors import GlocalError
from glocal.engines import Sequential, Vectorised
from glocal.nn.task import Task
from glocal.testing import ragged
from glocal.training import poisoning as poison
from glocal.training.attacks import parse


def test_labels_are_flipped_in_training_alone() -> None:
    fed = glocal.load("digits", clients=5, seed=0)
    found = poison.flipped(fed, (1, 3))
    for k in range(5):
        y, now = fed[k], found[k]
        assert torch.equal(now.train[1], 9 - y.train[1] if k in (1, 3) else y.train[1])
        for split in ("val", "test"):
            assert torch.equal(getattr(now, split)[1], getattr(y, split)[1])
    assert torch.equal(found.x, fed.x)


def test_a_backdoor_is_stamped_in_training_alone() -> None:
    fed = glocal.load("digits", clients=5, seed=0)
    attack = parse("backdoor(target=7, size=3)")
    assert attack.poison is not None
    found = attack.poison(fed, (2,))
    changed = (found.x != fed.x).flatten(1).any(1)
    mine = fed.train.of(2)
    assert set(changed.nonzero().flatten().tolist()) <= set(mine.tolist())
    marked = (found.x[mine][..., -3:, -3:] == fed.x.max()).flatten(1).all(1)
    assert 0.3 < float(marked.float().mean()) < 0.7
    assert bool((found.y_train[mine][marked] == 7).all())
    assert torch.equal(found.y_train[mine][~marked], fed.y_train[mine][~marked])
    assert torch.equal(found.y, fed.y)
    all_of_them = parse("backdoor(rate=1)").poison
    assert all_of_them is not None
    assert bool((all_of_them(fed, (2,)).y_train[mine] == 0).all())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("backdoor(size=9)", "9 pixels has no room on images of 8 × 8: give a smaller size"),
        ("backdoor(target=10)", "target must be one of the 10 classes, 0 to 9, not 10"),
    ],
)
def test_backdoors_that_do_not_fit(spec: str, message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        glocal.fit("fedavg", glocal.load("digits", clients=5), attack=spec, rounds=1)


def test_a_backdoor_needs_images() -> None:
    with pytest.raises(
        GlocalError, match=r"a pattern on images .* use another attack, such as lab"
    ):
        glocal.fit("fedavg", ragged(), attack="backdoor", rounds=1)


def test_success_is_of_stamped_images_of_other_classes() -> None:
    fed = glocal.load("digits", clients=4, seed=0)
    task = Task(glocal.nn.models.build("logistic", input_shape=(1, 8, 8), classes=10))
    # The first model always says 3; the second says 3 if the corner pixel is bright, else 8.
    weight = torch.zeros(4, 10, 64)
    bias = torch.zeros(4, 10)
    bias[0, 3] = 1
    weight[1, 3, 63], bias[1, 8] = 2.0 / float(fed.x.max()), 1.0
    bias[2:, 5] = 1
    names = list(task.params)
    models = {names[0]: weight, names[1]: bias}
    mark = poison.Trigger(3, 2)
    for engine in (Sequential(), Vectorised()):
        assert poison.success(mark, task, fed, engine, models, torch.arange(4)) == [
            1.0,
            1.0,
            0.0,
            0.0,
        ]
        target = replace(fed, y=torch.full_like(fed.y, 3))
        success = poison.success(mark, task, target, engine, models, torch.arange(4))
        assert all(map(math.isnan, success))


def test_engines_agree_on_a_backdoor() -> None:
    fed = toys.images()
    first, second = (
        glocal.fit(
            "fedavg",
            fed,
            model="mlp(4)",
            rounds=2,
            attack="backdoor(boost=2, share=0.4)",
            engine=engine,
            baseline="local(max_epochs=1)",
        )
        for engine in ("sequential", "vectorised")
    )
    assert first.summary["honest"] == second.summary["honest"]
    assert first.summary["honest"]["backdoor"] is not None
