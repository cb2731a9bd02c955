"""``glocal predict`` and ``glocal export``: a client's model in use."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from glocal import runs
from glocal.cli.options import PATH, folder_of, option, path_option, usable
from glocal.cli.output import file_for
from glocal.core.errors import GlocalError
from glocal.core.progress import print_note

if TYPE_CHECKING:
    from glocal.prediction.client_model import ClientModel

CLIENT = option(None, "Whose model, by the client's name; a saved model has one client only.")
METHOD = option(
    None, "Of a comparison: whose clients, by the method's name as it was typed.", "--method"
)
MODULE = option(
    None,
    "The architecture of an own model, as file.py:name; the file is run. Others are built by name.",
    "--module",
)


def predict(
    folder: Path = folder_of("The folder of a run, of a comparison, or of a saved model."),
    rows: Path = typer.Argument(
        ...,
        metavar="ROWS",
        help="New rows: a table as the model was trained on (.csv, .tsv, .xlsx, .parquet, "
        ".feather), with the same columns but the label; or an array of inputs (.npy).",
        callback=usable,
        click_type=PATH,
    ),
    client: str | None = CLIENT,
    method: str | None = METHOD,
    module: str | None = MODULE,
    out: Path | None = path_option(
        None,
        "Write the predictions to this .csv file; printed by default.",
        callback=file_for("--out"),
    ),
    separator: str | None = option(None, "Between cells of the .csv; found by default."),
    decimal: str | None = option(
        None, "The decimal mark of its numbers; as in training by default."
    ),
    encoding: str | None = option(None, "Of the .csv; UTF-8 or Windows-1252 by default."),
) -> None:
    """Predict new rows with one client's model.

    Prints a line for each row, in the order of the rows: prediction and, for classes, the
    probability of each (p_no, p_yes, …). Columns that the model does not know are ignored. A word
    that no training row had counts as none of the known ones (or as (other), where rare words are
    grouped), and a note says so. A missing column, or a cell of another kind, is an error that
    names it (code 2); then nothing is predicted.

    Examples:
      glocal predict runs/2026-01-31-120000-fedavg --client berlin new.csv

      glocal predict runs/2026-01-31-120000-compare --method ditto --client berlin new.csv

      glocal predict model new.csv
    """
    from glocal.data.table import is_table
    from glocal.prediction import predictions
    from glocal.prediction.rows import read_rows

    model = _model(folder, client, method, module)
    options = {"separator": separator, "decimal": decimal, "encoding": encoding}
    given = read_rows(rows, **{name: value for name, value in options.items() if value is not None})
    columns = predictions.table(model, given)
    fitted = model.preprocessing.columns if model.preprocessing is not None else ()
    grouped = {column.name for column in fitted if column.other}
    for column, words in model.unknown_words(given).items():
        more = f" and {len(words) - 3} more" if len(words) > 3 else ""
        few, counted = ("", "none of the known ones")
        if column in grouped:
            few, counted = (", or few had", "(other)")
        print_note(
            f"column {column!r} has words that no training row had{few} ({', '.join(words[:3])}"
            f"{more}): they count as {counted}."
        )
    if model.preprocessing is not None and is_table(given):
        for column, example in model.preprocessing.far_numbers(given).items():
            print_note(
                f"column {column!r} has numbers far outside of those in training, such as "
                f"{example}: check their unit and their decimal mark."
            )
    if out is None or out == Path("-"):
        sys.stdout.write(predictions.as_csv(columns))
    else:
        predictions.write_csv(columns, out)


def export(
    folder: Path = folder_of("The folder of a run, of a comparison, or of a saved model."),
    to: Path = path_option(..., "The new folder that the model is written to.", "--to"),
    client: str | None = CLIENT,
    method: str | None = METHOD,
    module: str | None = MODULE,
    format: str = option(
        "folder",
        "folder: weights, description and preprocessing, for 'glocal predict' and "
        "glocal.load_model; torch: also model.pt2, for torch.export.load; onnx: also model.onnx "
        "(needs glocal\\[onnx]).",
        "--format",
    ),
) -> None:
    """Write one client's model to a folder of its own, which needs no training data.

    The folder has model.safetensors, model.json and, of a table, preprocessing.json; nothing in it
    is code. model.pt2 and model.onnx take features as in training, and give probabilities.

    Examples:
      glocal export runs/2026-01-31-120000-fedavg --client berlin --to model

      glocal export runs/2026-01-31-120000-fedavg --client berlin --to model --format onnx
    """
    from glocal.prediction import exporting

    exporting.check_format(format)
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise GlocalError(f"--to {to} is there already: choose another folder.")
    model = _model(folder, client, method, module)
    exporting.export(model, to, format)
    typer.echo(f"Model of {model.name}: {to}")


def _model(folder: Path, client: str | None, method: str | None, module: str | None) -> ClientModel:
    from glocal.core.own_code import is_own, load_own

    if module is not None and not is_own(module):
        raise GlocalError(f"--module {module} names no code: write it like net.py:Net.")
    given = None if module is None else load_own(module, "model")
    return runs.client_models.client_model(folder, client, method, given)
