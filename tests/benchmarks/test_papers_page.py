"""The papers' tables: the page and pictures made of cells, packed data, and the command."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glocal.data.datasets.registry import MNIST
from papers import cells, estimates, packing, page, pictures, tables
from papers_tables import FIT, ROOT, tiny


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
