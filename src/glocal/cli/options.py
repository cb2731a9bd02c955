"""The options that commands share: each with its help, in one place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from glocal.core.errors import GlocalError, shown

Data = Annotated[
    str,
    typer.Option(
        help="A data set ('glocal data' lists them), or your own .csv or .npz file.",
        rich_help_panel="Data",
    ),
]
Clients = Annotated[
    int, typer.Option(help="How many clients the data is dealt among.", rich_help_panel="Data")
]
Partition = Annotated[
    str | None,
    typer.Option(
        help="How it is dealt: iid, dirichlet(0.3), dirichlet-clients(0.3), classes(2), shards(2), "
        "quantity(0.5), by(column). Default: the data's own clients, or dirichlet(0.3).",
        rich_help_panel="Data",
    ),
]
Transform = Annotated[
    list[str] | None,
    typer.Option(
        "--transform",
        help="Change some clients' data, as in 'rotate(90, clients=5)' or 'pair-noise(0.4)'; may "
        "be given several times.",
        rich_help_panel="Data",
    ),
]
Label = Annotated[
    str, typer.Option(help="The label column of a .csv file.", rich_help_panel="Data")
]
Client = Annotated[
    str, typer.Option(help="The client column of a .csv file.", rich_help_panel="Data")
]
Model = Annotated[
    str,
    typer.Option(
        help="A model such as mlp, 'mlp(200,200)', lenet, cnn, resnet10; or your own, as "
        "net.py:Name ('glocal methods' lists all).",
        rich_help_panel="Training",
    ),
]
Init = Annotated[
    str | None,
    typer.Option(
        help="Start from the weights in this .safetensors file.", rich_help_panel="Training"
    ),
]
Augment = Annotated[
    str | None,
    typer.Option(help="Augment training images, as in 'crop(4)+flip'.", rich_help_panel="Training"),
]
Rounds = Annotated[int, typer.Option(help="Communication rounds.", rich_help_panel="Training")]
FractionOf = Annotated[
    float, typer.Option(help="Share of clients in a round.", rich_help_panel="Training")
]
Sampled = Annotated[
    int | None,
    typer.Option(help="Clients in a round, instead of --fraction.", rich_help_panel="Training"),
]
PoissonOption = Annotated[
    bool,
    typer.Option(
        "--poisson",
        help="Each client is in a round by its own coin of that probability.",
        rich_help_panel="Training",
    ),
]
Repeats = Annotated[
    int,
    typer.Option(
        help="Repeat on other splits and seeds; verdicts pool over them, so fewer stay undecided.",
        rich_help_panel="Judging",
    ),
]
Yardstick = Annotated[
    str,
    typer.Option(
        help="How clients train alone, as in 'local(max_epochs=200)'.", rich_help_panel="Judging"
    ),
]
ValidateEvery = Annotated[
    int,
    typer.Option(
        help="Record validation accuracy each so many rounds (0: after the last).",
        rich_help_panel="Judging",
    ),
]
NewTest = Annotated[
    bool,
    typer.Option(
        "--new-test",
        help="Also judge all clients' models together on data of unknown origin.",
        rich_help_panel="Judging",
    ),
]
Adapt = Annotated[
    str | None,
    typer.Option(
        help="Let each client adapt what it got: fine-tune, freeze-base, ewc, distill, with "
        "settings and joined by +, or best (all of them, and of those each client's best).",
        rich_help_panel="Judging",
    ),
]
Seed = Annotated[int, typer.Option(help="Of everything drawn: same seed, same result.")]
EngineOption = Annotated[
    str,
    typer.Option(
        "--engine",
        help="sequential, vectorised, compiled (vectorised, and compiled first), or auto (by "
        "model, device and length of the run).",
        rich_help_panel="Machine",
    ),
]
Device = Annotated[str, typer.Option(help="cpu or cuda.", rich_help_panel="Machine")]
PrecisionOption = Annotated[
    str,
    typer.Option(
        "--precision",
        help="single, or bf16: training's products and convolutions in bfloat16.",
        rich_help_panel="Machine",
    ),
]
Jobs = Annotated[
    int,
    typer.Option(
        help="Processes to train in (0: one a core, where models are small and there is much to "
        "train).",
        rich_help_panel="Machine",
    ),
]
Diverged = Annotated[
    str,
    typer.Option(
        help="A client whose training is not finite: fatal (the run ends), skip (it sits the round "
        "out), clip (what is finite of its update is used, shortened).",
        rich_help_panel="Training",
    ),
]
StatesOption = Annotated[
    str,
    typer.Option(
        help="Where clients' states are kept: on the device, in the host's memory (host), on disk, "
        "or by their size (auto). Changes nothing that comes out.",
        rich_help_panel="Machine",
    ),
]
CheckpointEvery = Annotated[
    int,
    typer.Option(
        help="Rounds from checkpoint to checkpoint (0: as often as it takes 5 % of the time).",
        rich_help_panel="Output",
    ),
]
KeepCheckpoints = Annotated[
    int, typer.Option(help="How many checkpoints are kept.", rich_help_panel="Output")
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        help="Also pass every round on to tensorboard or mlflow; may be given several times.",
        rich_help_panel="Output",
    ),
]


def usable(path: Path | None) -> Path | None:
    """Refuse, before anything is trained, a path that no file or folder can have."""
    if path is None:
        return None
    problem = None
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass  # it may be made, and whoever makes it says why not
    except OSError as error:
        problem = error.strerror
    except ValueError:
        problem = "it holds a NUL character"
    # Files are written beside their place first, under a name a little longer.
    if problem is None and len(os.fsencode(path.name)) > LONGEST_NAME:
        problem = "File name too long"
    if problem is not None:
        raise GlocalError(
            f"the path {shown(str(path))} cannot be used ({problem}): choose another."
        )
    return path


LONGEST_NAME = 240

Out = Annotated[
    Path | None,
    typer.Option(
        help="The run folder; a new one under runs/ by default.",
        rich_help_panel="Output",
        callback=usable,
    ),
]
Json = Annotated[
    Path | None,
    typer.Option(
        "--json",
        help="Also write all figures to this file ('-': print).",
        rich_help_panel="Output",
        callback=usable,
    ),
]


def chosen(arguments: dict[str, Any]) -> dict[str, Any]:
    """The settings among a command's arguments."""
    from dataclasses import fields

    from glocal.runs.settings import Settings

    names = {f.name for f in fields(Settings)}
    found = {k: v for k, v in arguments.items() if k in names}
    lists = {"transforms": "transform", "track": "track"}
    return {**found, **{name: tuple(arguments.get(k) or ()) for name, k in lists.items()}}
