"""The engine that really ran, and what becomes of a round where compiling is not to be had."""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest
import torch
from test_engines import work
from test_program import close

import glocal
import toys
from glocal import engines
from glocal.engines import Sequential, Vectorised, resolve
from glocal.engines.base import Workload
from glocal.engines.compiled import cuda_graphs, inductor
from glocal.nn.task import Task

LONG = Workload(inductor.MIN_STEPS["cpu"], 6)
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")


@pytest.fixture(autouse=True)
def notes_are_new() -> None:
    cuda_graphs.note.cache_clear()


@needs_compiler
def test_a_compiled_round_says_so() -> None:
    engine = resolve("auto", Task(toys.dropout_net()), torch.device("cpu"))
    assert engine.executed == "vectorised"
    engine.round(work())
    assert engine.executed == "vectorised"
    engine.round(replace(work(), workload=LONG))
    assert engine.executed == "compiled"


def test_a_short_run_of_a_large_model_is_sequential(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "DENSE_LIMIT", 1)
    engine = resolve("auto", Task(toys.dropout_net()), torch.device("cpu"))
    engine.round(work())
    assert engine.executed == "sequential"
    monkeypatch.setattr(inductor, "_compiled", no_compiler)
    engine.round(replace(work(), workload=LONG))
    assert engine.executed == "sequential"


def no_compiler(*_: Any) -> Any:
    raise RuntimeError("no compiler")


@pytest.mark.parametrize(
    "module",
    ["torch._inductor.compile_fx", "torch._functorch.config", "torch._subclasses.fake_tensor"],
)
def test_a_torch_without_what_compiling_needs_trains_uncompiled(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package, _, name = module.rpartition(".")
    engine, job = Vectorised(compiled=True), work()
    expected = Sequential().round(job)  # beforehand: with several threads it copies the model
    monkeypatch.setitem(sys.modules, module, None)
    if package in sys.modules:
        monkeypatch.delattr(sys.modules[package], name, raising=False)
    for _ in range(2):
        close(engine.round(job), expected)
    assert engine.executed == "vectorised"
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cannot be compiled here" in said
    assert name in said


@needs_compiler
def test_two_threads_compile_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Steps with dropout, whose draws must stay operators in both traces, to their end."""
    jobs = [work() for _ in range(2)]
    together = Barrier(2)

    def compiled(job: Any) -> Any:
        together.wait()
        engine = Vectorised(compiled=True)
        return engine.round(job), engine.executed

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(compiled, jobs))
    for job, (result, executed) in zip(jobs, results, strict=True):
        close(result, Sequential().round(job))
        assert executed == "compiled"
    assert capsys.readouterr().err == ""


def test_the_record_names_what_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inductor, "_compiled", no_compiler)
    x, y = torch.randn(60, 5), torch.arange(60) % 3
    fed = glocal.federation(x, y, clients=[i % 3 for i in range(60)])
    run = glocal.fit("fedavg", fed, model="mlp(4)", rounds=2, engine="compiled")
    assert run.settings["engine"] == "vectorised"
