"""The papers' tables: files of settings, and a runner that can be stopped."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial

import pytest
import torch

import glocal
from glocal.core import locks
from glocal.core.errors import GlocalError
from glocal.engines.lanes import SideBySide
from glocal.methods.specs import resolve
from papers import beyond, cells, estimates, newcomer, tables, together
from papers.measuring import config_of
from papers_tables import AGAIN, ALONE, FIT, JOIN, TINY, WITHOUT, tiny


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
