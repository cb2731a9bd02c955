"""Memory: counted by hand, refused with the number, and read from what the system says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import glocal
from glocal.core import hardware as machine
from glocal.core.errors import GlocalError
from glocal.experiment import memory_estimate as limits
from glocal.experiment import setup as place
from glocal.experiment import setup as setups
from glocal.experiment.client_footprint import Client, footprint
from glocal.experiment.config import Config
from glocal.experiment.fit import train_all
from glocal.experiment.memory_estimate import Estimate
from glocal.experiment.runner import memory_needed, runner_of
from glocal.methods import resolve
from glocal.nn.task import Task
from glocal.slots.weighting import Setting
from toys import images, own_model, seeded

QUICK: dict[str, Any] = {"model": "mlp(8)", "rounds": 2, "baseline": "local(max_epochs=1)"}


def have(monkeypatch: pytest.MonkeyPatch, free: int | None) -> None:
    monkeypatch.setattr(machine, "available", lambda device="cpu": free)


def one_layer() -> tuple[Task, torch.Tensor, torch.Tensor]:
    task = Task(seeded(lambda: nn.Linear(5, 3, bias=False)))
    return task, torch.zeros(4, 5), torch.zeros(4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("spec", "state", "carry", "sent"),
    [
        ("fedavg", 0, 1, 1),
        ("fedavg(momentum=0.9)", 0, 2, 1),
        ("ditto", 1, 2, 1),
        ("scaffold", 1, 1, 2),
    ],
)
def test_a_client_is_counted_in_models(spec: str, state: int, carry: int, sent: int) -> None:
    task, x, y = one_layer()
    one, server = footprint(resolve(spec), task, x, y, 7, Setting(2, 1.0, 1))  # type: ignore[arg-type]
    model, step_counter = 5 * 3 * 4, 4
    assert (one.state, one.sent, one.gradient) == (state * model, sent * model, model)
    assert one.carry - carry * model in (0, step_counter)
    assert server == (2 if spec == "scaffold" else 1) * model


def test_what_autograd_saves_is_extrapolated_to_a_mini_batch() -> None:
    task, x, y = one_layer()
    setting = Setting(2, 1.0, 1)
    saved = {
        n: footprint(resolve(f"fedavg(batch_size={n})"), task, x, y, 50, setting)[0].saved  # type: ignore[arg-type]
        for n in (10, 20, 0)
    }
    # At least inputs (5) and log-probabilities (3) in floats, and a label of 8 bytes.
    assert saved[20] - saved[10] >= 10 * (4 * (5 + 3) + 8)
    assert (saved[0] - saved[10]) == 4 * (saved[20] - saved[10])  # of 0, all 50 at once


def sizes(**other: Any) -> Estimate:
    one = Client(state=100, carry=200, sent=100, gradient=100, saved=50, candidates=100)
    alone = Client(state=100, carry=100, gradient=100, saved=50, candidates=100)
    base = Estimate(10, "vectorised", 100, alone, 3, cohort=4, rounds=1000, server=100, one=one)
    return replace(base, **other)


def test_a_round_by_hand() -> None:
    parts = sizes().phases["a round"]
    assert parts["the local baseline's models"] == 10 * 100
    assert parts["what clients keep"] == 10 * 100
    assert parts["what a round's clients keep, as it begins"] == 4 * 100
    assert parts["clients at once"] == 4 * (200 + 100 + 200)  # before, gradient, after
    loop = sizes(engine="sequential").phases["a round"]
    assert loop["a round's updates"] == 2 * 4 * 200  # one by one, and stacked
    assert loop["a client's training"] == 500
    best = sizes(keeps_best=True, lanes=2).phases["keeping"]["the best round"]
    assert best == 2 * (100 + 10 * 100)


def test_only_clients_that_are_drawn_keep_something() -> None:
    assert sizes(rounds=1).taking_part == 4
    assert sizes(rounds=2).taking_part == 6  # 10 · (1 − 0.6²) = 6.4
    assert sizes(rounds=1000).taking_part == 10


def test_the_largest_phase_counts_in_every_process() -> None:
    found = sizes()
    assert found.total == max(sum(parts.values()) for parts in found.phases.values())
    two = sizes(processes=2)
    assert two.total >= 2 * (found.total + limits.PROCESS)
    assert "local baseline" not in sizes(known=True).phases


def test_a_cohort_too_large_for_one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits.vectorised, "MEMORY", 6 * 100)  # one model at a time
    parts = sizes().phases["a round"]
    assert (parts["a round's updates"], parts["clients at once"]) == (4 * 200, 4 * 200)


def test_a_run_that_cannot_fit_is_refused_before_anyone_trains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fed = glocal.load("digits", clients=20)
    have(monkeypatch, 100_000)
    monkeypatch.setattr(place, "measured", lambda *_: pytest.fail("somebody trained"))
    with pytest.raises(GlocalError) as refused:
        glocal.fit("ditto", fed, sampled=4, **QUICK)
    said = str(refused.value)
    assert "needs about" in said
    assert "0.1 MB are free" in said
    assert "lower --clients" in said
    assert "use a smaller model" in said
    assert "--jobs" not in said  # there is one process
    assert "--repeats" not in said  # and one repeat


def test_a_run_that_just_fits_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = glocal.load("digits", clients=4)
    order = Config(**{**QUICK, "rounds": 1})
    need = memory_needed(runner_of("method", "fedavg"), setups.make(order, fed, 0))
    assert need is not None
    have(monkeypatch, need.total)
    glocal.fit("fedavg", fed, **{**QUICK, "rounds": 1})
    have(monkeypatch, need.total - 1)
    with pytest.raises(GlocalError, match="needs about"):
        glocal.fit("fedavg", fed, seed=1, **{**QUICK, "rounds": 1})


def test_nothing_known_is_nothing_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, None)
    limits.check(sizes(clients=10**12), "cpu")


@pytest.mark.parametrize(
    ("other", "remedy"),
    [
        ({"processes": 4}, "use --jobs 1"),
        ({"repeats": 30}, "lower --repeats"),
        ({"cohort": 10, "known": True}, "lower --sampled or --fraction"),
        ({"one": Client(100, 200, 100, 100, saved=9000)}, "use --engine sequential"),
        ({"cohort": 1, "known": True, "one": Client(1000, 200, 100, 100)}, "use --states disk"),
    ],
)
def test_remedies_are_those_that_help(
    monkeypatch: pytest.MonkeyPatch, other: dict[str, Any], remedy: str
) -> None:
    have(monkeypatch, 1)
    with pytest.raises(GlocalError, match=remedy):
        limits.check(sizes(**other), "cpu")
    with pytest.raises(GlocalError) as refused:
        limits.check(sizes(engine="sequential", cohort=1), "cpu")
    assert remedy not in str(refused.value)


def test_a_model_that_cannot_be_made_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = glocal.load("digits", clients=4)
    have(monkeypatch, 10**9)
    with pytest.raises(GlocalError, match=r"mlp\(65536, 65536\) has 17\.2 GB .* 1\.0 GB are free"):
        glocal.fit("fedavg", fed, model="mlp(65536, 65536)", rounds=1)


def test_processes_are_as_many_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    need = sizes(repeats=6)
    two = sizes(repeats=6, processes=2).total
    have(monkeypatch, two)
    assert limits.processes(need, 3) == 2
    have(monkeypatch, two - 1)
    assert limits.processes(need, 3) == 1


def test_processes_that_were_asked_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Config(**QUICK, clients=4, repeats=2, jobs=2)
    have(monkeypatch, 300 << 20)
    with pytest.raises(GlocalError, match=r"in each of 2 processes.*use --jobs 1"):
        list(train_all(["fedavg"], settings, settings.federation()))


def test_of_several_methods_the_one_that_does_not_fit_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = Config(**QUICK, clients=4, jobs=1, seed=7)
    have(monkeypatch, 50_000)
    with pytest.raises(GlocalError, match=r"^fedavg needs about"):
        list(train_all(["fedavg", "ditto"], settings, settings.federation()))


def test_a_method_that_fails_is_left_to_the_one_who_trains() -> None:
    order = Config(model=seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 3))), rounds=1)
    broken = own_model().replace(local=replace(own_model().local, start=None))  # type: ignore[arg-type]
    setup = setups.make(order, images(), 0)
    assert memory_needed(runner_of("method", broken), setup) is None


def files(root: Path, **content: str) -> Path:
    for name, text in content.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_what_the_system_says(tmp_path: Path) -> None:
    assert machine.available(root=tmp_path) is None
    files(tmp_path, proc__meminfo="MemTotal: 9 kB\nMemAvailable:   2000 kB\n")
    assert machine.available(root=tmp_path) == 2000 * 1024


def test_a_control_group_leaves_less(tmp_path: Path) -> None:
    files(tmp_path, proc__meminfo="MemAvailable: 2000 kB\n", proc__self__cgroup="0::/a/b\n")
    group = tmp_path / "sys/fs/cgroup/a"
    parts = {"memory.max": "900000", "memory.current": "500000"}
    files(group, **parts, **{"memory.stat": "anon 1\nfile 200000\nshmem 50000\n"})
    assert machine.available(root=tmp_path) == 900_000 - (500_000 - 150_000)
    files(group, **{"memory.max": "max"})
    assert machine.available(root=tmp_path) == 2000 * 1024


def test_a_control_group_of_the_first_version(tmp_path: Path) -> None:
    files(tmp_path, proc__self__cgroup="4:cpu,memory:/elsewhere\n")
    group = tmp_path / "sys/fs/cgroup/memory"
    files(group, **{"memory.limit_in_bytes": "1000", "memory.usage_in_bytes": "400"})
    assert machine.available(root=tmp_path) == 600
    files(group, **{"memory.limit_in_bytes": "9223372036854771712"})
    assert machine.available(root=tmp_path) is None
