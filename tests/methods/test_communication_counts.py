"""How many parameters a published model has, how many of them travel; how long method files are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import glocal.methods
from glocal.core.tree import count
from glocal.methods import resolve
from glocal.nn import models
from glocal.nn.task import Task
from glocal.slots.method import as_plan
from glocal.slots.sharing import size_by_part

MLP = ("mlp(512, 256, 256, 128)", (1, 28, 28))
LENET = ("lenet", (3, 32, 32))


@pytest.mark.parametrize(
    ("model", "shared", "total", "travels"),
    [
        (MLP, "last(3)", 633_226, 99_978),
        (MLP, "last(2)", 633_226, 34_186),
        (LENET, "convs.*", 64_102, 2_872),
        (LENET, "first(2)", 64_102, 2_872),
        (LENET, "'convs.0|convs.1'", 64_102, 2_872),
    ],
)
def test_the_parameters_of_lg_fedavg_s_models(
    model: tuple[str, tuple[int, ...]], shared: str, total: int, travels: int
) -> None:
    spec, shape = model
    task = Task(models.build(spec, input_shape=shape, classes=10))
    *_, stage = as_plan(resolve(f"lg-fedavg(shared={shared})")).stages
    names = stage.method.shared_names(task)
    assert count(task.params) == total
    assert size_by_part(task.params, names) == (travels, total - travels)


FILES = sorted(Path(glocal.methods.__path__[0]).glob("*.py"))
NO_PAPERS = {"__init__", "registry", "specs", "hyperparameters", "presets", "preset_table"}
PAPERS = [file for file in FILES if file.stem not in NO_PAPERS]


@pytest.mark.parametrize("file", PAPERS, ids=lambda file: file.stem)
def test_a_method_is_at_most_120_lines(file: Path) -> None:
    """Beside what its functions' docstrings say after their first lines: plain words, settings."""
    text = re.sub(r'(?<=    """)(.+)\n\n(?:.*\n)*?    """', r'\1"""', file.read_text("utf-8"))
    assert len(text.splitlines()) <= 120
