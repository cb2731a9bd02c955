"""The configuration of a run: every setting once, with its type, its default and its help.

``glocal.fit(**settings)``, settings files and the options of the command line derive from the
fields of :class:`Config`. A new setting is a field here and the line that uses it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from glocal.core import validation
from glocal.experiment.config_checks import check
from glocal.experiment.setting import setting

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from glocal.data.federation import Federation
    from glocal.engines.base import Engine
    from glocal.experiment.adaptation import Technique
    from glocal.nn.losses import Losses
    from glocal.nn.task import Augment
    from glocal.slots.method import Method
    from glocal.training.attacks import Attack
    from glocal.training.availability import Availability
    from glocal.training.stragglers import Stragglers

    Measured = Callable[[Any, Any], float]
else:  # the options are derived from these types, and need not wait for torch
    Measured = Tensor = Module = Engine = Technique = Augment = Losses = Method = Attack = Any
    Availability = Stragglers = Any

DEFAULT_COMPARISON = ("local", "fedavg", "fedprox", "ditto")

COMPARE_DEFAULTS: dict[str, Any] = {"repeats": 3, "baseline": "best", "tune": True}
"""What a comparison takes unless told otherwise, where that differs from a single run."""

GROUPS = ("Data", "Training", "Evaluation", "Machine", "Output")
"""The groups of settings, as the help of a command shows them."""


@dataclass(frozen=True)
class Config:
    """Everything that a run depends on but the method; checked when it is made."""

    data: str = setting(
        "digits",
        "Data",
        "A data set ('glocal data' lists them), your own file or folder, or own.py:function.",
    )
    clients: int | None = setting(
        None, "Data", "How many clients the data is partitioned among; 20 by default."
    )
    partition: str | None = setting(
        None,
        "Data",
        "How it is partitioned: iid, dirichlet(0.3), dirichlet-clients(0.3), classes(2), "
        "shards(2), quantity(0.5), by(column). Default: the data's own clients; for data sets by "
        "name, dirichlet(0.3).",
    )
    split: tuple[float, float, float] = setting(
        (0.7, 0.1, 0.2), "Data", "Shares of training, validation and test examples.", option=""
    )
    transforms: tuple[str, ...] = setting(
        (),
        "Data",
        "Change some clients' data, as in 'rotate(90, clients=5)' or 'pair-noise(0.4)' (training "
        "labels; with val=true validation labels, too); may be given several times.",
        option="transform",
    )
    label: str = setting("label", "Data", "The label column of a table.")
    client: str = setting("client", "Data", "The client column of a table.")
    group: str | None = setting(
        None,
        "Data",
        "The column of a table that says which rows belong together, such as a patient's: "
        "these stay in one split and count as one.",
    )
    pooled: bool | None = setting(
        None,
        "Data",
        "Real clients differ in their label shares only: evaluate each on all clients' test "
        "examples, unless a test says that they differ in more.",
    )
    drop: tuple[str, ...] = setting(
        (), "Data", "Columns of a table that are no features, as in 'name,room'; may be repeated."
    )
    features: tuple[str, ...] = setting(
        (), "Data", "The columns of a table that are features; all that are nothing else."
    )
    preprocessing: str = setting(
        "federated",
        "Data",
        "Whose statistics a table's columns are prepared with: federated (of all clients) or "
        "client (each client's own).",
    )
    task: str = setting(
        "auto",
        "Data",
        "What labels are: classification, regression (numbers) or counts; auto: classes, unless "
        "they may be a quantity, which is an error.",
    )
    separator: str | None = setting(
        None, "Data", "Between the cells of a .csv file, as in ';' or tab; it is found by default."
    )
    decimal: str | None = setting(
        None, "Data", "The decimal mark of a .csv file, '.' or ','; it is found by default."
    )
    encoding: str | None = setting(
        None, "Data", "The encoding of a .csv file, as in cp1252; it is found by default."
    )
    min_examples: int = setting(
        0, "Data", "Leave out the data's own clients with fewer examples, and name them.", least=0
    )
    protected: tuple[str, ...] = setting(
        (),
        "Data",
        "Columns of a table that are protected attributes (sex, origin), not features; may be "
        "repeated.",
    )
    chronological: bool | None = setting(
        None,
        "Data",
        "Rows are in the order of time: each client trains on its first and is tested on its last. "
        "Text always is.",
    )
    parts: str | None = setting(
        None,
        "Data",
        "The column of a table that says which rows are for training, validation and test.",
    )
    test: str = setting(
        "own",
        "Data",
        "Whose test examples: own, or official (clients train on all of theirs, and the official "
        "test set is cut by their training labels).",
    )
    model: str | Module | Callable[[], Module] | Mapping[str, Any] = setting(
        "mlp",
        "Training",
        "A model such as mlp, 'mlp(200,200)', lenet, cnn, resnet10; or your own, as net.py:Name "
        "('glocal methods' lists all); or several, of which clients have one each: 'mlp | cnn'.",
    )
    assign: str | Mapping[str, str] = setting(
        "turns", "Training", "Who has which model: turns, size, or names, as in 'ward*=mlp, *=cnn'."
    )
    init: str | Path | Mapping[str, Tensor] | None = setting(
        None, "Training", "Start from the weights in this .safetensors file."
    )
    losses: str | Losses | None = setting(
        None,
        "Training",
        "The loss: squared, absolute or huber of numbers, poisson of counts, cross_entropy of "
        "classes; the first that fits by default. In Python also a function that gives one loss "
        "per example from outputs and labels.",
        option="loss",
    )
    augment: str | Augment | None = setting(
        None, "Training", "Augment training images, as in 'crop(4)+flip'."
    )
    rounds: int = setting(50, "Training", "Communication rounds.", least=1)
    fraction: float = setting(1.0, "Training", "Share of clients in a round.")
    sampled: int | None = setting(None, "Training", "Clients in a round, instead of --fraction.")
    poisson: bool = setting(
        False, "Training", "Poisson sampling: each client is in a round with that probability."
    )
    availability: str | Availability | None = setting(
        None,
        "Training",
        "Which sampled clients answer: 'dropout(0.2)', 'on-off(5, 3)', 'away(11, 20)', or all.",
    )
    stragglers: str | Stragglers | None = setting(
        None, "Training", "Clients that finish part of a round: 'use(0.5)', or 'drop(0.5)' them."
    )
    diverged: str = setting(
        "fatal",
        "Training",
        "A client whose training is not finite: fatal (the run ends), skip (it sits the round "
        "out), clip (what is finite of its update is used, shortened).",
    )
    longest_update: float | None = setting(
        None,
        "Training",
        "Leave out updates that are longer than so many times the median of their round; by "
        "default only deployments do (10).",
    )
    tune: bool = setting(
        False,
        "Training",
        "Choose the rate and the number of rounds on validation data, then train again on training "
        "and validation data.",
    )
    patience: int | None = setting(
        None,
        "Training",
        "Stop when the metric on validation data was evaluated so often without getting better, "
        "and keep the best round; never by default.",
        least=1,
    )
    public_noise: bool = setting(
        False,
        "Training",
        "Draw the noise of dp, and who is sampled with it, from the seed, not from a secret key: "
        "the run can be repeated, and anyone who has the seed can take the noise off.",
    )
    attack: str | Attack | None = setting(
        None, "Training", "What malicious clients do, as in 'sign-flip(share=0.2)'.", option=""
    )
    repeats: int = setting(
        1,
        "Evaluation",
        "Repeat on other splits and seeds; verdicts pool over them, so fewer stay undecided, and "
        "with three or more they cover the luck of training, not of the test examples alone.",
        least=1,
    )
    baseline: str | Method | None = setting(
        "same",
        "Evaluation",
        "What clients have alone: same (the same model), best (the best of that, logistic "
        "regression, SVM, kNN and boosted trees, by cross-validation), none, or how the same model "
        "is trained, as in 'local(max_epochs=200)'.",
    )
    label_share_uncertainty: bool = setting(
        False,
        "Evaluation",
        "Where test examples are pooled, intervals also cover the client's label shares, which "
        "are estimated from the labels it trains on.",
    )
    metric: str | Measured | None = setting(
        None,
        "Evaluation",
        "What better off is measured by, and what is chosen by on validation data: accuracy (the "
        "default), balanced_accuracy, f1, log_loss, brier, ece, top5; of two classes also auc and "
        "average_precision; of text also perplexity; of numbers and counts mae (the default), rmse "
        "and r2; or your own function of labels and predictions, as own.py:name. (All but accuracy "
        "on own test splits.)",
    )
    same: float | None = setting(
        None,
        "Evaluation",
        "A client is about the same where its interval lies within so much of 0, as a share (2 "
        "points are 0.02), of numbers in their unit; by default 0.02, or 5 % of what an error is "
        "alone.",
    )
    join_cost: float = setting(
        0.0,
        "Evaluation",
        "What taking part costs a client, in points (of numbers, in their unit): advice takes it "
        "off.",
    )
    personalise_cost: float = setting(
        0.0, "Evaluation", "What a model of its own costs a client on top of that, in points."
    )
    validate_every: int | None = setting(
        None,
        "Evaluation",
        "Record losses and the metric on validation data each so many rounds, for learning curves "
        "(0: after the last alone); by default about 20 times in a run, or less often where that "
        "would take long.",
        least=0,
    )
    new_test: bool = setting(
        False, "Evaluation", "Also evaluate all clients' models together on data of unknown origin."
    )
    adapt: str | Technique | Sequence[Technique] | None = setting(
        None,
        "Evaluation",
        "Let each client adapt what it got: fine-tune, freeze-base, ewc, distill, with settings "
        "and joined by +, or best (all of them, and of those each client's best).",
    )
    public: tuple[Tensor, Tensor] | None = setting(
        None, "Evaluation", "Inputs and labels that are nobody's, for ewc(fisher=public)."
    )
    seed: int = setting(
        0,
        "Machine",
        "The seed of everything drawn but the noise of dp: same seed, same result.",
    )
    engine: str | Engine = setting(
        "auto",
        "Machine",
        "sequential, vectorised, compiled (vectorised, and compiled first), auto (by model, "
        "device and length of the run), or ray (clients on a Ray cluster).",
    )
    device: str = setting("cpu", "Machine", "cpu, cuda, or several, as in cuda:0,cuda:1.")
    precision: str = setting(
        "single",
        "Machine",
        "single; or training's products and convolutions in tf32 (on a GPU) or bf16.",
    )
    jobs: int | str = setting(
        1,
        "Machine",
        "Processes to train in (0: one a core, where models are small and there is much to train); "
        "ray: methods and repeats on a Ray cluster.",
        least=0,
    )
    states: str = setting(
        "auto",
        "Machine",
        "Where clients' states are kept: on the device, in the host's memory (host), on disk, or "
        "by their size (auto). Changes nothing that comes out.",
    )
    checkpoint_every: int = setting(
        0,
        "Output",
        "Rounds from checkpoint to checkpoint (0: as often as it takes 5 % of the time).",
        least=0,
    )
    keep_checkpoints: int = setting(2, "Output", "How many checkpoints are kept.", least=1)
    track: tuple[str, ...] = setting(
        (), "Output", "Also pass every round on to tensorboard or mlflow; may be repeated."
    )

    def __post_init__(self) -> None:
        check(self, kinds())

    def federation(self, *, announced: bool = True) -> Federation:
        """The clients' data; what became of a table's columns is said if ``announced``."""
        from glocal.data.loaded_note import announce
        from glocal.data.loading import load

        settings = {each.name: getattr(self, each.name) for each in of_group("Data")}
        fed = load(settings.pop("data"), **settings, seed=self.seed)
        if announced:
            announce(fed)
        return fed

    def arguments(self) -> dict[str, Any]:
        """The settings as :func:`glocal.fit` takes them: all but those of the data."""
        return {each.name: getattr(self, each.name) for each in of_group(*GROUPS[1:])}

    def as_toml(self) -> dict[str, Any]:
        """What TOML can hold: settings that are none, and objects of Python, are left out."""
        values = {name: getattr(self, name) for name in plain_kinds()}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value is not None and value != () and validation.fits(value, plain_kinds()[name])
        }

    def recorded(self) -> dict[str, Any]:
        """The settings that a run's record names: those that are always asked for, and others."""
        named: dict[str, Any] = {}
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if each.metadata["group"] in ("Data", "Output") or each.name in ("jobs", "public"):
                continue
            if each.name in RECORDED or value != each.default:
                plain = isinstance(value, str | int | float)
                named[each.name] = value if plain else getattr(value, "spec", type(value).__name__)
        return named

    def trained(self) -> dict[str, Any]:
        """The settings of this training, by which it is told from others."""
        named = self.recorded()
        return {each.name: named[each.name] for each in of_group("Training") if each.name in named}


RECORDED = ("model", "rounds", "fraction", "repeats", "seed", "engine", "device")
"""Settings that a record names even where they were left at their default."""


@cache
def kinds() -> dict[str, Any]:
    """The type of each setting."""
    return get_type_hints(Config)


@cache
def plain_kinds() -> dict[str, Any]:
    """The type of each setting that text can give: without the objects that Python may."""
    found = {name: validation.plain_kind(kind) for name, kind in kinds().items()}
    return {name: kind for name, kind in found.items() if kind is not None}


def of_group(*groups: str) -> list[dataclasses.Field[Any]]:
    """The fields of some groups, in order."""
    return [each for each in dataclasses.fields(Config) if each.metadata["group"] in groups]
