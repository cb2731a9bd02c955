"""The papers' tables: files of settings, a runner that can be stopped, a page made of cells."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import glocal  # noqa: E402
from glocal.core import locks  # noqa: E402
from glocal.core.errors import GlocalError  # noqa: E402
from glocal.data.datasets.registry import MNIST  # noqa: E402
from glocal.engines.lanes import SideBySide  # noqa: E402
from glocal.methods.specs import resolve  # noqa: E402
from papers import beyond, cells, estimates, newcomer, page, pictures, tables, together  # noqa: E402
from papers.measuring import config_of  # noqa: E402

TINY = """
title = "Tiny"
source = "a paper, its table"
kind = "{kind}"
seeds = [0, 1]
differs = ["Ours is of digits."]

[settings]
data = "digits"
clients = 4
partition = "classes(3)"
rounds = 4
sampled = 2
model = "mlp(8)"
engine = "vectorised"
baseline = "{baseline}"

[measure]
train = 60
test = 20
own_epochs = 1
join_rounds = 1
fraction = 0.5
epochs = [1, 2]
adapting = "fedavg(epochs={{epochs}}, lr=0.05)+uniform"

[quick]
rounds = 1

[[columns]]
name = "{column}"
label = "accuracy, %"

[[rows]]
name = "{method}"
label = "A method"
method = "{method}(lr=0.1, {more})"

[[groups]]
name = "digits"
label = "digits"
[groups.published]
{method} = [[50.0, 1.5]]
"""
FIT = {"kind": "fit", "column": "accuracy", "method": "superfed-mm", "more": "start=0.5"}
JOIN = {"kind": "join", "column": "old_after", "method": "lg-fedavg", "more": "warmup=2"}
AGAIN = {"kind": "again", "column": "again_2", "method": "fedavg", "more": "epochs=1"}
WITHOUT = {"kind": "without", "column": "kept_after", "method": "fedavg", "more": "epochs=1"}
ALONE = "local(max_epochs=2, lr=0.1)"


def tiny(folder: Path, kind: dict[str, str]) -> tables.Table:
    baseline = ALONE if kind in (JOIN, WITHOUT) else "none"
    (folder / "tiny.toml").write_text(TINY.format(**kind, baseline=baseline))
    return tables.read("tiny", folder)


@pytest.mark.parametrize("name", tables.names())
def test_a_tables_settings_and_methods_are_valid(name: str) -> None:
    table = tables.read(name)
    every = table.cells()
    assert len({cell.name for cell in every}) == len({cell.digest for cell in every}) == len(every)
    for cell in (*every, *table.cells(quick=True)):
        resolve(cell.method)
        config_of(cell, "cpu")
        assert estimates.seconds(cell, {}) > estimates.START


def test_rows_and_columns_that_are_not_there_are_refused(tmp_path) -> None:
    text = TINY.format(**FIT, baseline="none")
    (tmp_path / "a.toml").write_text(text.replace("superfed-mm = [[", "fedavg = [["))
    with pytest.raises(ValueError, match="no row 'fedavg'"):
        tables.read("a", tmp_path)
    (tmp_path / "b.toml").write_text(text.replace("[[50.0, 1.5]]", "[1, 2]"))
    with pytest.raises(ValueError, match="more figures than columns"):
        tables.read("b", tmp_path)


@pytest.mark.parametrize("kind", [FIT, JOIN, AGAIN, WITHOUT], ids=lambda kind: kind["kind"])
def test_a_cell_that_was_stopped_comes_to_the_same_bits(kind, tmp_path) -> None:
    cell = tiny(tmp_path, kind).cells()[0]
    whole = cells.Place(tmp_path / "whole", tmp_path / "work")
    assert cells.run([cell], whole, lambda: False)
    stopped = replace(whole, kept=tmp_path / "stopped")
    attempts = 0
    while stopped.done(cell) is None:
        asked = iter([False, True, True, True])  # in the second round
        done = cells.run([cell], stopped, partial(next, asked, False))
        assert done == (stopped.done(cell) is not None)
        assert done or stopped.round([cell]) > 0
        attempts += 1
    assert attempts > 1
    a, b = whole.done(cell), stopped.done(cell)
    assert a is not None
    assert b is not None
    assert a["figures"] == b["figures"]
    assert not list((tmp_path / "work").iterdir())


def test_cells_that_differ_in_seed_and_partition_train_as_one(tmp_path, monkeypatch) -> None:
    first, second = tiny(tmp_path, FIT).cells()
    second = replace(second, settings={**second.settings, "partition": "iid"})
    by_itself, as_one = (
        cells.Place(tmp_path / name, tmp_path / "work") for name in ("by itself", "as one")
    )
    assert together.divided([first, second], 1) == [(first,), (second,)]
    assert together.divided([first, second], 2) == [(first, second)]
    for cell in (first, second):
        assert cells.run([cell], by_itself, lambda: False)
    asked = iter([False, True])  # stopped in the second round, and resumed
    assert not cells.run([first, second], as_one, partial(next, asked, False))
    assert as_one.round([first, second]) == as_one.round([second, first]) == 2
    merged: list[int] = []
    rounds = SideBySide.rounds
    monkeypatch.setattr(
        SideBySide, "rounds", lambda *given: merged.append(len(given[2])) or rounds(*given)
    )
    assert cells.run([first, second], as_one, lambda: False)
    assert merged == [2, 2]
    for cell in (first, second):
        alone, beside = by_itself.done(cell), as_one.done(cell)
        assert alone is not None
        assert beside is not None
        assert beside["as_one"] == 2
        assert beside["figures"]["clients"] == alone["figures"]["clients"]
        for name in ("accuracy", "gradients", "test_picked", "along_least", "params"):
            assert beside["figures"][name] == pytest.approx(alone["figures"][name], abs=1e-3), name
    first_figures, second_figures = (as_one.done(cell)["figures"] for cell in (first, second))
    assert first_figures["along"] != second_figures["along"]


def test_cells_of_other_methods_data_or_with_a_baseline_are_not_trained_as_one(tmp_path) -> None:
    first, second = tiny(tmp_path, FIT).cells()
    for other in (
        replace(second, method="fedavg"),
        replace(second, settings={**second.settings, "rounds": 5}),
        replace(second, measure={**second.measure, "classifier": "cnn"}),
    ):
        assert together.divided([first, other], 2) == [(first,), (other,)]
    compared = [
        replace(cell, settings={**cell.settings, "baseline": ALONE}) for cell in (first, second)
    ]
    assert together.divided(compared, 2) == [(cell,) for cell in compared]


def test_what_test_data_would_pick_has_a_name_of_its_own(tmp_path) -> None:
    place = cells.Place(tmp_path / "kept", tmp_path / "work")
    cell = tiny(tmp_path, FIT).cells()[0]
    assert cells.run([cell], place, lambda: False)
    kept = place.done(cell)
    assert kept is not None
    told = kept["figures"]
    assert [*told["along"]] == [f"λ={i / 10:g}" for i in range(11)]
    assert told["along_least"] == min(told["along"].values())
    assert told["test_picked_one"] == max(told["along"].values())
    assert told["test_picked"] >= told["test_picked_one"]
    assert told["test_picked"] >= told["accuracy"]


def test_averaging_again_what_hardly_moved_changes_nothing(tmp_path) -> None:
    place = cells.Place(tmp_path / "kept", tmp_path / "work")
    cell = tiny(tmp_path, AGAIN).cells()[0]
    still = replace(cell, measure={**cell.measure, "adapting": "fedavg(epochs={epochs}, lr=1e-9)"})
    figures = {}
    for name, each in (("moved", cell), ("still", still)):
        assert cells.run([each], replace(place, kept=tmp_path / name), lambda: False)
        figures[name] = replace(place, kept=tmp_path / name).done(each)["figures"]
    assert figures["moved"]["before"] == figures["still"]["before"]
    assert figures["still"]["again_1"] == figures["still"]["again_2"] == figures["still"]["before"]
    assert figures["moved"]["again_2"] != figures["moved"]["before"]


def test_who_gains_nothing_is_left_out_and_evaluated_all_the_same(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(beyond.retraining, "gain_nothing", lambda given, alone: (1,))
    place = cells.Place(tmp_path / "kept", tmp_path / "work")
    cell = tiny(tmp_path, WITHOUT).cells()[0]
    assert cells.run([cell], place, lambda: False)
    kept = place.done(cell)
    assert kept is not None
    told = kept["figures"]
    assert (told["removed"], told["removed_share"], told["clients"]) == (1, 0.25, 4)
    whole = replace(cell, kind="fit", measure={**cell.measure, "each": True})
    assert cells.run([whole], place, lambda: False)
    before = place.done(whole)["figures"]["each"]["accuracy"]
    assert told["removed_before"] == pytest.approx(before[1], abs=1e-4)
    assert told["kept_before"] == pytest.approx((sum(before) - before[1]) / 3, abs=1e-4)
    assert told["kept_before"] != told["kept_after"]
    assert told["kept_lower"] in (0, 1 / 3, 2 / 3, 1)


def test_figures_of_every_client_are_kept_where_they_are_drawn(tmp_path) -> None:
    place = cells.Place(tmp_path / "kept", tmp_path / "work")
    cell = tiny(tmp_path, WITHOUT).cells()[0]
    adapt = {"adapt": "fine-tune(max_epochs=2)+freeze-base(max_epochs=2)"}
    drawn = replace(
        cell, kind="fit", settings={**cell.settings, **adapt}, measure={**cell.measure, "each": 1}
    )
    assert cells.run([drawn], place, lambda: False)
    kept = place.done(drawn)
    assert kept is not None
    told, each = kept["figures"], kept["figures"]["each"]
    assert [len(each[name]) for name in ("accuracy", "local_accuracy", "adapted_by")] == [4, 4, 4]
    assert sum(each["adapted_accuracy"]) / 4 == pytest.approx(told["adapted_mean"], abs=1e-4)
    assert [*each["techniques"]] == ["fine-tune", "freeze-base"]
    below = [a < b for a, b in zip(each["accuracy"], each["local_accuracy"], strict=True)]
    assert sum(below) == told["worse"]


def test_the_newcomer_has_others_images_turned() -> None:
    fed = glocal.load("digits", clients=4, partition="iid")
    both = newcomer.with_rotated(fed, seed=0, train=40, test=10)
    assert [len(split.of(4)) for split in (both.train, both.val, both.test)] == [36, 4, 10]
    assert len(both) == 5
    for split, sources in (("train", ("train", "val")), ("test", ("test",))):
        theirs = torch.cat([getattr(fed, name).rows for name in sources])
        images = {fed.x[row].numpy().tobytes(): int(fed.y[row]) for row in theirs}
        for row in getattr(both, split).of(4):
            back = torch.rot90(both.x[row], -1, (1, 2)).contiguous()
            assert images[back.numpy().tobytes()] == int(both.y[row])
    for k in range(4):
        assert torch.equal(both.train.of(k), fed.train.of(k))


def test_a_cell_that_another_runner_has_is_passed_over(tmp_path) -> None:
    first, second = tiny(tmp_path, FIT).cells()
    place = cells.Place(tmp_path / "kept", tmp_path / "work")
    with locks.hold(place.work / first.digest):
        assert list(cells.run_all([(first,), (second,)], place, time.time() + 600)) == [
            ((second,), True)
        ]
    assert place.done(first) is None
    assert list(cells.run_all([(first,), (second,)], place, time.time() - 1)) == []


def test_changed_settings_are_run_again(tmp_path) -> None:
    table = tiny(tmp_path, FIT)
    place = cells.Place(tmp_path, tmp_path)
    cell = table.cells()[0]
    kept = {"digest": cell.digest, "figures": {}}
    place.file(cell).write_text(json.dumps(kept))
    assert place.done(cell) == kept
    other = replace(table, settings={**table.settings, "rounds": 5}).cells()[0]
    assert other.name == cell.name
    assert place.done(other) is None


def test_cells_of_the_repository_are_done_wherever_new_ones_are_written(
    tmp_path, monkeypatch
) -> None:
    cell = tiny(tmp_path, FIT).cells()[0]
    kept = {"digest": cell.digest, "figures": {}}
    monkeypatch.setattr(cells, "KEPT", tmp_path / "repository")
    (tmp_path / "repository").mkdir()
    place = cells.Place(tmp_path / "new", tmp_path)
    assert place.done(cell) is None
    (tmp_path / "repository" / f"{cell.name}.json").write_text(json.dumps(kept))
    assert place.done(cell) == kept


def test_trials_show_nothing_of_test_data() -> None:
    names = tables.names(tables.TRIALS)
    assert names
    for name in names:
        trials, seeds = tables.read(name), set()
        for table in map(tables.read, tables.names()):
            same = {g.settings["data"] for g in trials.groups} & {
                g.settings.get("data") for g in table.groups
            }
            if same and table.name.startswith("fedevg"):
                seeds |= {seed for group in table.groups for seed in group.seeds}
        assert all("val" in column.name for column in trials.columns)
        assert not seeds & {seed for group in trials.groups for seed in group.seeds}


def test_a_preset_whose_settings_change_has_another_digest() -> None:
    cell = tables.read("lg-table6").cells()[0]
    spelt = replace(cell, method=cell.method.replace("warmup=400", "warmup=401"))
    assert spelt.digest != cell.digest


def found(table: tables.Table, values: tuple[float, ...], device: str) -> dict[Any, Any]:
    return {
        cell: {
            "figures": {"accuracy": value, "accuracy_std": 0.03, "test_picked": None},
            "device": device,
            "seconds": 80.0,
            "at_once": 2,
        }
        for cell, value in zip(table.cells(), values, strict=False)
    }


def test_the_page_has_published_ours_and_the_difference(tmp_path) -> None:
    table = tiny(tmp_path, FIT)
    done = found(table, (0.52, 0.54), "two x86-64 cores")
    text = page.section(table, done, {})
    assert (
        "| digits | A method | accuracy, % | 50.00 (1.50) | 53.00 (1.41) | +3.00 | 2 | "
        "two x86-64 cores |"
    ) in text
    assert "- Ours is of digits." in text
    assert "Not run" not in text
    over_clients = replace(table, columns=(replace(table.columns[0], spread="clients"),))
    assert "53.00 (3.00)" in page.section(over_clients, done, {})
    half = page.section(table, found(table, (0.52,), "cuda"), {})
    assert "| 52.00 | +2.00 | 1 of 2 |" in half
    assert "- digits: all rows; 1 run, about " in half


def test_estimates_come_from_cells_that_ran_on_a_gpu(tmp_path) -> None:
    table = tiny(tmp_path, FIT)
    assert estimates.seen(found(table, (0.5,), "two x86-64 cores")) == {}
    seen = estimates.seen(found(table, (0.5,), "NVIDIA H200"))
    cell = table.cells()[0]
    assert seen == {"mlp": pytest.approx(1000 * (80 - 20) / 2 / estimates.milliseconds(cell))}
    assert estimates.seconds(cell, seen) == pytest.approx(20 + (80 - 20) / 2)


def test_the_page_shows_what_was_kept() -> None:
    text = page.text([tables.read(name) for name in tables.names()], cells.Place())
    kept = page.PAGE.read_text(encoding="utf-8")
    assert text == kept, "python benchmarks/papers/run.py --page"


def test_no_cell_is_left_over_from_other_settings() -> None:
    every = {cell.name: cell for name in tables.names() for cell in tables.read(name).cells()}
    for path in cells.KEPT.glob("*.json"):
        assert path.stem in every
        assert cells.Place().done(every[path.stem]) is not None, f"{path.stem} has to be run again"


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_packed_data_is_unpacked_again(tmp_path, monkeypatch, shape) -> None:
    from papers import packing

    rng = np.random.default_rng(0)
    smooth = np.linspace(0, 200, 7 * np.prod(shape)).reshape(7, *shape)
    sizes = {"x_train": (7, *shape), "y_train": (7,), "x_test": (3, *shape), "y_test": (3,)}
    given = {k: rng.integers(0, 256, size, dtype=np.uint8) for k, size in sizes.items()}
    given["x_train"] = (smooth + rng.integers(0, 9, smooth.shape)).astype(np.uint8)
    sums = {k: hashlib.sha256(x.tobytes()).hexdigest() for k, x in given.items()}
    data = replace(MNIST, name="images", shape=shape, counts=(7, 3), sha256=sums)
    monkeypatch.setattr(packing, "IMAGES", {"images": data})
    monkeypatch.setattr(packing, "arrays", lambda data: given)
    monkeypatch.setattr(packing, "AT_ONCE", 4)
    monkeypatch.setattr(packing, "LIMIT", 4 * np.prod(shape))
    monkeypatch.setenv("GLOCAL_CACHE", str(tmp_path))
    packing.pack(tmp_path, ["images"])
    assert len(list(tmp_path.glob("*/images-*.z"))) == 3
    assert (tmp_path / "1").is_dir()
    assert (tmp_path / "2").is_dir()
    packing.unpack(tmp_path)
    with np.load(tmp_path / "images.npz") as again:
        assert all(np.array_equal(again[k], given[k]) for k in given)


def test_packed_data_that_is_not_whole_is_left_alone(tmp_path, monkeypatch) -> None:
    from papers import packing

    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "mnist-train-0.z").write_bytes(b"")
    (tmp_path / "1" / "adult.npz").write_bytes(b"of the cache")
    packing.unpack(tmp_path)
    assert not (tmp_path / "mnist.npz").exists()
    assert (tmp_path / "adult.npz").read_bytes() == b"of the cache"


def test_the_runner_needs_torch_and_numpy_alone() -> None:
    without = ("typer", "rich", "sklearn", "safetensors", "pandas", "scipy", "matplotlib", "PIL")
    program = (
        "import runpy, sys\n"
        f"for name in {without}: sys.modules[name] = None\n"
        "sys.argv = ['run.py', '--list']\n"
        f"runpy.run_path({str(ROOT / 'benchmarks/papers/run.py')!r}, run_name='__main__')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "lg-table6" in ended.stdout


def test_what_is_not_there_is_said_in_one_line() -> None:
    script = str(ROOT / "benchmarks/papers/run.py")
    for words, said in (
        (["lg-table9"], "there is no table lg-table9"),
        ([], "name a table"),
        (["lg-table6", "--only", "nobody"], "no cell has that name"),
        (["lg-table6", "--cell", "lg-table6.nobody"], "there is no cell lg-table6.nobody"),
        (["lg-table6", "--lanes", "0"], "invalid number above 0 value: '0'"),
        (["lg-table6", "--jobs", "-1"], "invalid number above 0 value: '-1'"),
        (["lg-table6", "--seeds", "0"], "invalid number above 0 value: '0'"),
        (["lg-table6", "--device", "tpu"], "unknown device 'tpu'"),
        (["--list", "--data", str(ROOT / "nowhere")], "there is no folder"),
        (["lg-table6", "--kept", __file__], "is a file: give a folder"),
        (["lg-table6", "--pack", __file__], "is a file: give a folder"),
    ):
        ended = subprocess.run(
            [sys.executable, script, *words], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 2
        assert said in ended.stderr
        assert "Traceback" not in ended.stderr


def test_pictures_are_of_cells_that_have_what_is_drawn(tmp_path) -> None:
    place = cells.Place(tmp_path / "kept", tmp_path / "work")
    table = tiny(tmp_path, FIT)
    first = table.cells()[0]
    assert not pictures.draw(table, {}, tmp_path / "none.png")
    assert cells.run([first], place, lambda: False)
    done = {first: place.done(first)}
    assert pictures.draw(table, done, tmp_path / "along.png")
    each = {
        "n_train": [10, 20, 30],
        "accuracy": [0.5, 0.6, 0.7],
        "local_accuracy": [0.6, 0.6, 0.6],
        "adapted_accuracy": [0.7, 0.5, 0.8],
        "adapted_by": ["fine-tune", "none", "ewc"],
        "complexity": [1.0, 2.0, 3.0],
        "techniques": {"fine-tune": [0.7, 0.4, 0.8], "ewc": [0.6, 0.5, 0.8]},
    }
    drawn = pictures.of_clients({"each": each})["summary"]
    assert (drawn["better_off"], drawn["worse_off"]) == (1, 1)
    assert (drawn["adapted_better_off"], drawn["adapted_worse_off"]) == (2, 1)
    assert pictures.draw(table, {first: {"figures": {"each": each}}}, tmp_path / "each.png")
    for name in ("along.png", "each.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "none.png").exists()


def test_cells_that_fail_in_processes_are_told_and_the_others_kept(tmp_path, monkeypatch) -> None:
    place = cells.Place(tmp_path / "kept", tmp_path / "work", jobs=2)
    first, second = tiny(tmp_path, FIT).cells()
    ended = list(cells.run_in_processes([(first,), (second,)], place, time.time() + 60, []))
    assert ended == [((first,), None), ((second,), None)]  # no process knows of such a table


def test_more_cells_as_one_than_fit_are_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(together, "lanes", lambda need, device, most: 1)
    place = cells.Place(tmp_path / "kept", tmp_path / "work")
    with pytest.raises(GlocalError, match=r"do not fit into memory: give --lanes 1\.$"):
        cells.run(tiny(tmp_path, FIT).cells(), place, lambda: False)
