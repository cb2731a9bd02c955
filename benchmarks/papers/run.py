"""The papers' tables: published figures, and ours beside them.

    python benchmarks/papers/run.py --list                     the tables, and what is done of each
    python benchmarks/papers/run.py --list lg-table6           its cells
    python benchmarks/papers/run.py lg-table6                  the cells that are not done
    python benchmarks/papers/run.py --all --device cuda --jobs 6 --seconds 500
    python benchmarks/papers/run.py fedevg-table4.2 --only mnist-10-1
    python benchmarks/papers/run.py lg-table6 --quick          a few rounds, kept apart in quick/
    python benchmarks/papers/run.py fedevg-table4.2 --device cuda --lanes 6   six as one program
    python benchmarks/papers/run.py --pictures --page          docs/measurements/papers.md
    python benchmarks/papers/run.py lg-table6 --pack DIR       data for a machine without a network

It can be stopped at any time (--seconds stops it cleanly) and goes on where it stopped, cell by
cell and, within a cell, from glocal's checkpoints in work/. Cells that are done are in cells/;
those whose settings changed since are run again. It needs torch and numpy, and the data: in
glocal's cache, or with --data in a folder that --pack wrote.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).parents[1]))

from glocal.core.errors import GlocalError
from glocal.engines import devices
from papers import packing, page, pictures, tables
from papers.cells import QUICK, Place, run_all, run_in_processes
from papers.tables import Cell, Table
from papers.together import divided


def asked() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE")
    parser.add_argument("--all", action="store_true", help="all tables")
    parser.add_argument("--list", action="store_true", help="what there is, and what is done")
    parser.add_argument(
        "--only", action="append", metavar="TEXT", help="cells whose names have this in them"
    )
    parser.add_argument("--cell", action="append", metavar="NAME", help="the cell of this name")
    parser.add_argument("--seeds", type=positive, help="the first so many seeds of each group")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=positive, default=1, help="cells at once, in processes")
    parser.add_argument(
        "--lanes", type=positive, default=1, help="cells that differ in seed and partition, as one"
    )
    parser.add_argument("--at-once", type=positive, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="then stop cleanly")
    parser.add_argument("--quick", action="store_true", help="the tables' settings for a trial")
    parser.add_argument("--data", type=Path, metavar="DIR", help="a folder that --pack wrote")
    parser.add_argument("--kept", type=Path, metavar="DIR", help="write cells to this folder")
    parser.add_argument("--page", action="store_true", help=f"write {page.PAGE.name}")
    parser.add_argument("--pictures", action="store_true", help="draw docs/pictures/papers-*.png")
    parser.add_argument("--pack", type=Path, metavar="DIR", help="data, in folders up to 52 MiB")
    return parser.parse_args()


def positive(text: str) -> int:
    """An integer of 1 or more."""
    if (number := int(text)) < 1:
        raise ValueError
    return number


positive.__name__ = "number above 0"  # as argparse calls it


def of_all_tables(given: argparse.Namespace) -> bool:
    """Whether what is asked for is of all tables, where none is named."""
    return bool(given.all or given.list or given.page or given.pictures)


def refuse(why: str) -> NoReturn:
    """End with one sentence."""
    print(why, file=sys.stderr)
    raise SystemExit(2)


def main() -> None:
    """Do what was asked for, or say in a sentence why not."""
    try:
        do(asked())
    except (GlocalError, OSError) as error:
        refuse(str(error))


def do(given: argparse.Namespace) -> None:
    """Show, pack, draw, or run cells."""
    for option, path in (("--data", given.data), ("--kept", given.kept), ("--pack", given.pack)):
        if path is not None and path.exists() and not path.is_dir():
            refuse(f"{option} {path} is a file: give a folder.")
    if given.data is not None:
        if not given.data.is_dir():
            refuse(f"there is no folder {given.data}: --pack writes one.")
        os.environ["GLOCAL_DATA"] = os.environ["GLOCAL_CACHE"] = str(given.data.resolve())
        if given.cell is None:
            packing.unpack(given.data)
    every = [*tables.names(), *tables.names(tables.TRIALS)]
    if unknown := sorted(set(given.tables) - set(every)):
        refuse(f"there is no table {unknown[0]}: there are {', '.join(tables.names())}.")
    chosen = given.tables or (tables.names() if of_all_tables(given) else [])
    if not chosen:
        refuse("name a table, or give --all; --list shows what there is.")
    several = [tables.read(name) for name in chosen]
    if given.pack is not None:
        cells = [cell for table in several for cell in table.cells()]
        packing.pack(given.pack, sorted({tables.data_of(cell) for cell in cells} - {"digits"}))
        return
    place = Place(device=given.device, jobs=given.at_once or given.jobs)
    if given.kept or given.quick:
        place = replace(place, kept=given.kept or QUICK)
    if given.list:
        for table in several:
            show(table, place, quick=given.quick, named=bool(given.tables))
        return
    if given.pictures:
        for table in several:
            if pictures.draw(table, page.all_done([table], place), pictures.file_of(table)):
                print(f"{table.name}: {pictures.file_of(table).name}")
    if given.page:
        page.PAGE.write_text(page.text([tables.read(name) for name in tables.names()], Place()))
    if given.page or given.pictures:
        return
    devices.named(given.device)  # refused before anything is begun
    run_cells(selected(several, given), place, given)


def selected(several: list[Table], given: argparse.Namespace) -> list[Cell]:
    """The cells that were asked for."""
    names = {cell.name for table in several for cell in table.cells(quick=given.quick)}
    if unknown := sorted(set(given.cell or []) - names):
        refuse(f"there is no cell {unknown[0]}: --list TABLE shows what there is.")
    found = []
    for table in several:
        for cell in table.cells(quick=given.quick):
            first = table.group(cell.group).seeds[: given.seeds]
            named = given.cell is None or cell.name in given.cell
            wanted = any(text in cell.name for text in given.only or [""])
            if named and cell.seed in first and wanted:
                found.append(cell)
    if not found:
        refuse("no cell has that name: --list shows what there is.")
    return found


def run_cells(cells: list[Cell], place: Place, given: argparse.Namespace) -> None:
    """Those that are not done, and how long it took."""
    began = time.time()
    until = began + given.seconds
    todo = [cell for cell in cells if place.done(cell) is None]
    print(f"{len(cells) - len(todo)} of {len(cells)} cells are done", flush=True)
    several = divided(todo, given.lanes)
    if given.jobs > 1:
        options = ["--quick"] if given.quick else []
        options += ["--data", str(given.data)] if given.data else []
        ends = run_in_processes(several, place, until, options)
    else:
        ends = run_all(several, place, until)
    failed = 0
    for together, done in ends:
        failed += done is None
        for cell in together if done is not None else ():
            found = place.done(cell)
            told = f"stopped after round {place.round(together)}, to be resumed"
            if done and found:
                told = page.in_a_line(tables.read(cell.table), found)
                told += f" ({found['seconds']:.0f} s, {found['figures'].get('engine', '')})"
            print(f"{cell.name}: {told}", flush=True)
    left = sum(place.done(cell) is None for cell in cells)
    minutes = (time.time() - began) / 60
    print(f"{minutes:.1f} minutes of {place.device}; {left} of {len(cells)} cells are left")
    if failed:
        refuse(f"{failed} of these failed, as told above; the others are kept.")


def show(table: Table, place: Place, *, quick: bool, named: bool) -> None:
    """A table's name, title and how many cells are done; of a table that was named, all of them."""
    cells = table.cells(quick=quick)
    done = sum(place.done(cell) is not None for cell in cells)
    print(f"{table.name:20} {done:3} of {len(cells):3} cells  {table.title}")
    if named:
        for cell in cells:
            found = place.done(cell)
            print(f"  {cell.name}: {page.in_a_line(table, found) if found else 'not run'}")


if __name__ == "__main__":
    main()
