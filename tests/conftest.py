"""What all tests share.

One thread a process, unless ``OMP_NUM_THREADS`` says otherwise: threads of several processes on few
cores wait for each other.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

THREADS = int(os.environ.setdefault("OMP_NUM_THREADS", "1"))  # of processes that tests start, too
torch.set_num_threads(THREADS)


def compiles(test: Any) -> Any:
    """Mark a test that needs a C++ compiler and seconds of it: ``make test-compiled`` runs it."""
    without = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
    return pytest.mark.slow(without(test))


@pytest.fixture(scope="module")
def few_digits() -> Iterator[None]:
    """``digits`` has 449 images in this module: its tests do not ask how much can be learned.

    Not for modules that compare with other processes, which have all of them.
    """
    from glocal.data.datasets import registry

    entry, whole = registry.SOURCES["digits"], registry.digits()
    few = replace(whole, x=whole.x[::4], y=whole.y[::4])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.SOURCES, "digits", replace(entry, make=lambda: few))
        yield


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """``command("run", "fedavg")`` in an empty folder: exit code, stdout, stderr.

    Comparisons are of one repeat, untuned and against the same model, unless their words say else.
    """
    from glocal.cli import app

    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> tuple[int, str, str]:
        given = [str(word) for word in words]
        if given[:1] == ["compare"] and "--help" not in given:
            quick = {"--repeats": ["1"], "--baseline": ["same"], "--tune": []}
            for name, value in quick.items():
                if name not in given:
                    given += [name if value else "--no-tune", *value]
        monkeypatch.setattr(sys, "argv", ["glocal", *given])
        with pytest.raises(SystemExit) as ended:
            app.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[int, Tensor]:
    """The rows [steps, batch] of each client's mini-batches, in their order, as they are drawn."""
    from glocal.engines import batching, sequential, vectorised

    rows: dict[int, Tensor] = {}

    def plan(split: Any, ids: Tensor, *rest: Any) -> batching.Batches:
        batches = batching.plan(split, ids, *rest)
        for client, its, weight in zip(ids.tolist(), batches.rows, batches.weight, strict=True):
            rows[client] = its[:, weight[0] > 0]
        return batches

    for engine in (sequential, vectorised):
        monkeypatch.setattr(engine, "plan", plan)
    return rows
