"""The harness of ``benchmarks/peers.py``: who did other work, or is not there, gets no time."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from peers import cases, harness, loop, ours, table
from peers.work import Turns, Work, load, load_params

ROOT = Path(__file__).parents[2]

TINY = cases.Case("tiny", "MLP 4-3-3", "mlp(3)", (4,), 2, 5, 6, 4, classes=3)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    drawn = cases.drawn(TINY, tmp_path_factory.mktemp("peers") / "tiny", rounds=2)
    drawn.save()
    return load(drawn.folder)


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"{name}_script", ROOT / f"benchmarks/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ends(contest: Any, work: Work, setting: str, tmp_path: Path) -> list[np.ndarray[Any, Any]]:
    """The model after two turns."""
    commands = [
        {"do": "round", "round": 0},
        {"do": "round", "round": 1},
        {"do": "params", "file": str(tmp_path / "end.npz")},
        {"do": "stop"},
    ]
    says = io.StringIO()
    contest(work, setting, Turns(io.StringIO("\n".join(map(json.dumps, commands))), says))
    ready, first, second, saved = map(json.loads, says.getvalue().splitlines())
    assert (ready["ready"], saved["saved"]) == (True, True)
    assert min(first["seconds"], second["seconds"]) > 0
    return load_params(tmp_path / "end.npz")


@pytest.mark.parametrize(
    ("contest", "setting"),
    [
        (loop.contest, "1 thread"),
        (ours.contest, "auto"),
        (ours.contest, "sequential"),
    ],
)
def test_everybody_ends_where_the_plain_loop_does(contest, setting, work, tmp_path) -> None:
    right = list(cases.reference(work))
    assert len(right) == 2
    loss, gap, why = harness.same_work(work, ends(contest, work, setting, tmp_path), right[-1])
    assert why is None
    assert gap <= harness.TOLERANCE
    assert loss == pytest.approx(cases.loss(work, right[-1]), abs=1e-5)


def test_who_does_other_work_is_found_out(work, tmp_path) -> None:
    right = list(cases.reference(work))[-1]
    lazy = replace(work, orders=work.orders[:, :, :-1])
    _, _, why = harness.same_work(work, ends(loop.contest, lazy, "1 thread", tmp_path), right)
    assert why is not None
    assert why.startswith("not the same work: loss")
    nothing = [np.full_like(p, np.nan) for p in right]
    assert harness.same_work(work, nothing, right)[2] is not None
    assert harness.same_work(work, right[:-1], right)[2] == "its model has other shapes"


def test_the_cohorts_and_orders_are_whole(work) -> None:
    assert work.cohorts.shape == (2, 2)
    assert (work.cohorts[:, 0] < work.cohorts[:, 1]).all()
    assert (work.orders[0] != work.orders[1]).any()
    assert (np.sort(work.orders, axis=-1) == np.arange(6)).all()


def test_workers_take_turns_and_one_that_dies_gets_a_line(tmp_path) -> None:
    who = [
        harness.Contestant("plain loop", "loop", ("1 thread",)),
        harness.Contestant("nobody", "no_such_file", ("auto",)),
    ]
    found = harness.measure(TINY, who, tmp_path, tmp_path, 1, 1, lambda what: None)
    fine, dead = (c["settings"][0] for c in found["contestants"])
    assert fine["failed"] is None
    assert fine["ms"] > 0
    assert len(fine["times_ms"]) == 1
    assert fine["loss"] == pytest.approx(found["loss"], abs=1e-5)
    assert found["loss"] != pytest.approx(found["loss_before"], abs=1e-5)
    assert dead["ms"] is None
    assert "no_such_file" in dead["failed"]


def test_who_is_not_installed_is_skipped_with_one_line(tmp_path, monkeypatch, capsys) -> None:
    envs = tmp_path / "envs"
    monkeypatch.setattr(sys, "argv", ["peers.py", "--envs", str(envs), "--only", "fedjax"])
    with pytest.raises(SystemExit, match="nobody is left"):
        script("peers").main()
    (line,) = capsys.readouterr().out.splitlines()
    assert line == (
        f"FedJAX: skipped, {envs / 'fedjax'} is not there; "
        "python benchmarks/peers.py --install fedjax makes it."
    )


def test_everybody_who_needs_an_environment_has_its_pins() -> None:
    for who in harness.CONTESTANTS:
        assert (ROOT / "benchmarks" / "peers" / f"{who.module}.py").exists()
        if who.environment:
            pins = (ROOT / "benchmarks" / "peers" / f"{who.environment}.txt").read_text()
            lines = [line for line in pins.splitlines() if not line.startswith("#")]
            assert all("==" in line for line in lines)


def result(*contestants: tuple[str, dict[str, float | None]], load: float = 0.1) -> dict[str, Any]:
    def setting(name: str, ms: float | None) -> dict[str, Any]:
        return {
            "setting": name, "note": "", "failed": None if ms else "it died: alas", "ms": ms,
            "ready_s": 1.0, "first_s": 2.0, "peak_mb": 300.0, "loss": 2.3,
        }  # fmt: skip

    settings = [
        {"name": name, "settings": [setting(*item) for item in times.items()]}
        for name, times in contestants
    ]
    case = {"name": "tiny", "case": str(TINY), "parameters": 27, "contestants": settings}
    machine = {"cores": 2, "load": load, "date": "2026-11-15"}
    return {"machine": machine, "repeats": 7, "warm_up": 2, "cases": [case]}


def test_the_table_takes_the_best_setting_of_each() -> None:
    found = result(
        ("glocal", {"auto": 10.0}),
        ("plain loop", {"1 thread": 30.0, "all threads": 40.0}),
        ("pfl", {"1 thread": None, "all threads": 123.4}),
        ("FedJAX", {"jit": None}),
    )
    row = table.markdown(found).splitlines()[2]
    assert row.endswith("| **10** (auto) | 30 (3.0×) | – | 123 (12.3×) | – | – |")
    lines = table.text(found)
    assert any("1 thread *" in line and "3.00" in line for line in lines)
    assert lines[-2:] == ["pfl, 1 thread: it died: alas", "FedJAX, jit: it died: alas"]


def test_the_table_says_when_the_machine_was_busy() -> None:
    busy, idle = (table.markdown(result(("glocal", {"auto": 1.0}), load=n)) for n in (1.5, 0.5))
    assert "2 cores with other programs on them, 2026" in busy
    assert "2 cores, 2026" in idle


def test_the_readme_shows_what_was_kept() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    kept = json.loads((ROOT / "benchmarks" / "peers.json").read_text(encoding="utf-8"))
    assert page.count(table.BEGIN) == page.count(table.END) == 1
    assert table.placed(page, kept) == page, "python benchmarks/peers.py --readme"


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(SystemExit, match="no <!-- peers"):
        table.placed("nothing", result(("glocal", {"auto": 1.0})))


def test_growth_gives_both_the_same_work(tmp_path) -> None:
    growth = script("growth")
    point = replace(growth.case("clients", 3), examples=7)
    drawn = cases.drawn(point, tmp_path, rounds=1)
    models = []
    for prepare in (growth.loop_round, growth.glocal_round):
        one_round, params, _ = prepare(drawn, "cpu")
        one_round(0)
        models.append(params())
    for a, b, c in zip(*models, drawn.initial, strict=True):
        assert np.abs(a - b).max() < 1e-6
        assert np.abs(a - c).max() > 1e-6


def test_growth_grows_one_thing_at_a_time() -> None:
    growth = script("growth")
    assert [growth.case("clients", n).sampled for n in (10, 1000)] == [10, 1000]
    assert [growth.case("steps", n).examples for n in (1, 256)] == [10, 2560]
    assert growth.case("size", 512).model == "mlp(512, 512)"
    point = {
        "axis": "size", "value": 13002, "engine": "vectorised", "loop_ms": 30.0, "glocal_ms": 10.0,
        "loop_mb": 2.0, "glocal_mb": 5.0,
    }  # fmt: skip
    told = dict(zip(growth.HEADER, growth.row(point), strict=True))
    assert told["value"] == "13,002"
    assert told["loop / glocal"] == "3"
