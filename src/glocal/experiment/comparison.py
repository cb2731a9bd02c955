"""The runs of a comparison: tables, pictures and files of all of them together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from glocal.core import notebooks
from glocal.core.files import dump, make_folder, write
from glocal.experiment import result_files
from glocal.experiment.learning_curves import lines_of
from glocal.experiment.run import Run, empty_folder, frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


class Comparison(dict[str, Run], notebooks.Reported):
    """Runs of several methods on the same clients, by the methods' names."""

    def to_frame(self) -> DataFrame:
        """One row for each method: the numbers of its summary."""
        rows = [
            {"method": name, **{k: v for k, v in run.summary.items() if isinstance(v, int | float)}}
            for name, run in self.items()
        ]
        return frame(rows)

    def curves(self) -> DataFrame:
        """What was recorded of each method's rounds and repeats, a line for each."""
        return frame(
            {"method": name, **line} for name, run in self.items() for line in lines_of(run)
        )

    def plot(self, path: str | Path | None = None, metric: str | None = None) -> Figure:
        """Learning curves of all methods as a matplotlib figure; with a path, written there."""
        figure: Figure = notebooks.figure(self, path, metric)
        return figure

    def plot_clients(self, path: str | Path | None = None) -> Figure:
        """What each client gains over being alone, a panel for each method; written to a path."""
        where = None if path is None else Path(path)
        figure: Figure = notebooks.figure(self, where, of="clients")
        return figure

    def save(self, folder: str | Path) -> None:
        """Write every run to a folder of its own inside a new one, and all figures beside them."""
        root = empty_folder(Path(folder))
        for number, run in enumerate(self.values(), 1):
            result_files.save(run, make_folder(root / f"{number}-{result_files.slug(run.method)}"))
        write(root / "result.json", dump(result_files.result(self)))

    def _repr_html_(self) -> str | None:
        """In a notebook, the table that the command shows."""
        return notebooks.html(self)

    def __repr__(self) -> str:
        """A line for each run."""
        return "\n".join(map(repr, self.values()))
