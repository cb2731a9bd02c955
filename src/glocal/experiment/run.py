"""What came of a method, and what can be done with it: tables, models, files."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from glocal.core import notebooks, tree
from glocal.core.errors import GlocalError, unknown
from glocal.core.files import make_folder
from glocal.core.own_code import is_own
from glocal.core.types import Params, Tree
from glocal.data.federation import Federation
from glocal.data.preprocessing.fitted import Preprocessing
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.measures import of_task
from glocal.evaluation.summary import Table, client_table, summarise
from glocal.evaluation.trials import Trial
from glocal.experiment import ensemble, result_files
from glocal.experiment.adaptation_report import add_adapted
from glocal.experiment.attack_report import add_attack
from glocal.experiment.best_runner import AloneRepeats
from glocal.experiment.label_counts import about_data
from glocal.experiment.learning_curves import lines_of
from glocal.experiment.repeat import Repeat, Trained
from glocal.experiment.setup import Setup
from glocal.experiment.synthetic import Made
from glocal.experiment.unequal import ClientArchitectures
from glocal.nn import models
from glocal.nn.architectures import Architectures
from glocal.prediction.client_model import ClientModel
from glocal.prediction.description import Description, class_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(frozen=True)
class Run(notebooks.Reported):
    """What came of a method: a model, a row for each client, the federation's figures."""

    method: str
    model: Params
    """What the server ends with (private layers as they began); of ``local``, nothing."""
    clients: Table
    """One row for each client: accuracy, local_accuracy, benefit, verdict and more."""
    summary: dict[str, Any]
    """mean, worst10, better_off, worse_off, undecided, params_up and more."""
    history: list[dict[str, Any]]
    """A line for each round (for each epoch of ``local``: none)."""
    data: dict[str, Any]
    """Where the data came from and how it was partitioned."""
    states: Tree
    """What the clients keep: ``ids`` and their states, stacked (of ``local``: their models).

    Where states are on disk, ``ids`` alone: ``trained.progress.clients.rows_of(ids)`` reads some.
    """
    settings: dict[str, Any]
    """Everything that was chosen, by the caller or by rule."""
    trained: Trained | None = field(default=None, repr=False)
    """The first repeat as it stood after its last round, to evaluate it further; not in files."""
    repeats: tuple[Repeat, ...] = field(default=(), repr=False)
    """What each repeat came to; not in files."""
    baseline: tuple[Repeat, ...] = field(default=(), repr=False)
    """What the local baseline came to in each repeat; not in files."""
    best: tuple[Outcome, ...] = field(default=(), repr=False)
    """What the best alone came to in each repeat, where it was asked for; not in files."""
    alone_scores: tuple[Tensor, ...] = field(default=(), repr=False)
    """What choices hold against each method, [clients] of each repeat; not in files."""
    alone_losses: tuple[Tensor, ...] = field(default=(), repr=False)
    """The same for clients that have no score of the metric that counts."""
    template: nn.Module | None = field(default=None, repr=False)
    """The model's architecture, for :meth:`module` and :meth:`client_model`."""
    unequal: ClientArchitectures | None = field(default=None, repr=False)
    """Where clients have different models: who has which."""
    description: Description | None = field(default=None, repr=False)
    """What the clients' models are, to save them."""
    preprocessing: Preprocessing | None = field(default=None, repr=False)
    """How rows of the table became inputs in the first repeat; none: it was no table."""

    @property
    def is_baseline(self) -> bool:
        """Whether this is the local baseline itself: its benefit is 0 by definition."""
        return self.repeats is self.baseline and bool(self.repeats)

    @property
    def made(self) -> Made | None:
        """Synthetic data that the method made in the first repeat (x, y, figures), if any."""
        return self.repeats[0].made if self.repeats else None

    @property
    def seconds(self) -> float:
        """What training took, on average over repeats; not in the summary, as no two are alike."""
        return sum(r.seconds for r in self.repeats) / max(1, len(self.repeats))

    def module(self) -> nn.Module:
        """The server's model."""
        if not self.model:
            raise GlocalError(
                f"{self.method} has no server and so no model of its own: take a client's, with "
                "run.client_model(name)."
            )
        if self.unequal is not None:
            raise GlocalError(
                "clients have different models, of which the server has no whole one: take a "
                "client's, with run.client_model(name)."
            )
        return self._filled(self.template, self.model)

    def client_model(self, client: str | int) -> ClientModel:
        """The model that a client predicts with in the first repeat, by the client's name.

        An integer is the name of a client that is called by it, never a position.
        """
        names = [str(row["client"]) for row in self.clients]
        if str(client) not in names:
            raise unknown("client", client, names)
        number = names.index(str(client))
        if self.trained is not None:
            params = self.trained.models(torch.tensor([number]))
        elif self.repeats and not self.model:
            one, on_disk = torch.tensor([number]), self.repeats[0].on_disk
            models = {k: v for k, v in self.states.items() if k != "ids"}
            params = on_disk.rows_of(one) if on_disk else tree.row(models, one)
        else:
            raise GlocalError("this run's models were not kept: fit it again, or save it first.")
        if self.description is None:
            raise GlocalError("this run's models were not kept: fit it again.")
        name, template, weights = names[number], self.template, tree.row(params, 0)
        about = replace(self.description, client=name)
        if self.unequal is not None:
            template, weights = (
                self.unequal.part(number).module,
                self.unequal.weights(weights, number),
            )
            about = self.unequal.described(about, number)
        return ClientModel(
            name,
            self._filled(template, weights),
            about,
            self.preprocessing and self.preprocessing.of_client(name),
        )

    @staticmethod
    def _filled(template: nn.Module | None, params: Params) -> nn.Module:
        """The architecture with these weights."""
        if template is None:
            raise GlocalError("this run's models were not kept: fit it again.")
        module = copy.deepcopy(template).cpu()
        weights = {k: v.detach().cpu() for k, v in params.items()}
        module.load_state_dict(weights, strict=False)  # buffers stay as they are
        return module.eval()

    def to_frame(self) -> DataFrame:
        """The clients' table as a pandas DataFrame."""
        return frame(self.clients)

    def curves(self) -> DataFrame:
        """What was recorded of each round, and of each repeat, as a pandas DataFrame."""
        return frame(lines_of(self))

    def plot(self, path: str | Path | None = None, metric: str | None = None) -> Figure:
        """Learning curves as a matplotlib figure; with a path (.png, .svg, .pdf), written there."""
        figure: Figure = notebooks.figure(self, path, metric)
        return figure

    def save(self, folder: str | Path) -> None:
        """Write ``result.json``, ``metrics.jsonl`` and the models to a new folder."""
        result_files.save(self, empty_folder(Path(folder)))

    def _repr_html_(self) -> str | None:
        """In a notebook, the clients as the command shows them."""
        return notebooks.html(self)

    def __repr__(self) -> str:
        """The verdict in a line."""
        s, name = self.summary, self.summary.get("metric") or "accuracy"
        if s["benefit"] is None:
            return (
                f"<Run {self.method}: mean {name} {s['mean']:.3f} of {s['clients']} clients, "
                "which are set against no baseline>"
            )
        return (
            f"<Run {self.method}: mean {name} {s['mean']:.3f} (alone {s['local_mean']:.3f}); "
            f"{s['better_off']} better off, {s['worse_off']} worse off, "
            f"{s['same']} the same, {s['undecided']} undecided of {s['clients']}>"
        )


def assembled(
    setup: Setup, fed: Federation, name: str, repeats: Sequence[Repeat], alone: AloneRepeats
) -> Run:
    """All repeats of a method, set against clients alone; it may be the local baseline itself."""
    config, baseline, is_baseline = setup.config, alone.same, repeats is alone.same
    best: Sequence[Outcome | None] = alone.best or [None] * len(repeats)
    trials = [
        Trial(
            fed.fold(r) if r else fed,
            repeat.outcome,
            same.outcome,
            repeat.traffic,
            best[r],
            uncertain_shares=config.label_share_uncertainty,
        )
        # Without a baseline there is nothing to be set against: what is said of it is taken out.
        for r, (repeat, same) in enumerate(zip(repeats, baseline or repeats, strict=True))
    ]
    first = repeats[0]
    validated = [repeat.val_score.double().nanmean().item() for repeat in repeats]
    sign = of_task(setup.task).sign  # scores are such that higher is better
    rows = client_table(trials, config.same)
    summary = summarise(rows, trials) | {"same_within": config.same}
    summary["validation"] = sign * sum(validated) / len(validated)
    if first.trained is not None:
        at_the_end = first.trained
        summary["personal"] = not at_the_end.training.one_for_all(at_the_end.progress)
    if alone.left_out:
        summary["alone_left_out"] = dict(alone.left_out)
    summary["rounds"] = first.trained.training.rounds if first.trained else 0
    if first.privacy is not None:
        summary |= {k: first.privacy[k] for k in ("epsilon", "rounds")}
        summary["privacy"] = first.privacy
    if first.examples is not None:
        summary["example_privacy"] = {k: v for k, v in first.examples.items() if k != "epsilons"}
        for row, epsilon in zip(rows, first.examples["epsilons"], strict=True):
            row["epsilon"] = epsilon
    sets = [repeat.made for repeat in repeats if repeat.made is not None]
    if sets:
        for figure in ("accuracy", "val_accuracy"):
            summary[f"synthetic_{figure}"] = sum(m.figures[figure] for m in sets) / len(sets)
        summary["synthetic"] = sets[0].figures
    if diverged := _diverged(repeats):
        summary["diverged"] = diverged
    if tuned := [repeat.chosen for repeat in repeats if repeat.chosen is not None]:
        summary["chosen"] = tuned
    if kept := [repeat.kept for repeat in repeats if repeat.kept is not None]:
        summary["early_stopping"] = kept
    summary["params_published"] = first.published
    summary["gradient_evaluations"] = round(sum(r.gradients for r in repeats) / len(repeats))
    summary["parameters"] = tree.count(setup.task.params)
    if (unequal := ClientArchitectures.of(setup.task, config.model, fed)) is not None:
        summary |= unequal.figures(first.trained)
    adapted = [repeat.adapted for repeat in repeats if repeat.adapted is not None]
    if adapted:
        add_adapted(rows, summary, trials, adapted, config.same)
    if not baseline:
        without_baseline(rows, summary)
    struck = [repeat.struck for repeat in repeats if repeat.struck is not None]
    if struck:
        add_attack(rows, summary, struck)
    together = [repeat.together for repeat in repeats if repeat.together is not None]
    if together:
        summary["new_test"] = ensemble.mean(together)
    chosen: dict[str, Any] = {"model": setup.model_name, "engine": first.engine}
    if first.trained:
        chosen["rounds"] = first.trained.training.rounds
    several = tuple(repeats)
    return Run(
        method=name,
        model=first.model,
        clients=rows,
        summary=summary,
        history=first.history,
        states=first.states,
        data=about_data(fed, private=bool(first.privacy or first.examples)),
        settings={"method": name, **config.recorded(), **chosen},
        trained=first.trained,
        repeats=several,
        baseline=several if is_baseline else tuple(baseline),
        best=tuple(alone.best or ()),
        alone_scores=alone.scores or tuple(repeat.val_score for repeat in baseline),
        alone_losses=alone.losses
        or tuple(repeat.val_loss for repeat in baseline if repeat.val_loss is not None),
        template=setup.task.module,
        unequal=unequal,
        description=described(setup, fed, name),
        preprocessing=fed.preprocessing,
    )


def described(setup: Setup, fed: Federation, method: str) -> Description:
    """What the models of a run are."""
    given = setup.config.model
    own = is_own(given) or not isinstance(given, str)
    architecture = f"{setup.model_name}, given in Python"
    if isinstance(given, str):
        several = isinstance(setup.task, Architectures)
        architecture = given if own or several else models.completed(given, fed.vocabulary)
    return Description(
        client="",
        method=method,
        task=fed.target.task,
        metric=setup.metric,
        classes=class_names(fed.classes, fed.describe) if fed.target.classes else (),
        architecture=architecture,
        own=own,
        input_shape=tuple(fed.x.shape[1:]),
        tokens=not fed.x.is_floating_point(),
        outputs=fed.classes,
        location=fed.target.location,
        scale=fed.target.scale,
    )


OF_BASELINE = (
    *("best_local_", "local_", "benefit", "low", "high", "verdict"),
    *("estimate", "p_worse", "needs", "same_model_"),
)
"""How the columns of a client's row begin that are about what it has alone."""


def without_baseline(rows: Table, summary: dict[str, Any]) -> None:
    """Nothing is said of clients alone where there is no baseline: all of it is None."""
    for row in rows:
        bare = {k: k.removeprefix("adapted_").removeprefix("own_") for k in row}
        row |= {k: None for k in row if bare[k].startswith(OF_BASELINE)}
    of_counts = ("better_off", "worse_off", "same", "undecided", "above", "below", "ties")
    about = ("local_", "benefit", *of_counts)
    adapted = summary.get("adapted", {})
    for figures in (summary, summary.get("own", {}), *adapted.get("techniques", {}).values()):
        figures |= {k: None for k in figures if k.removeprefix("adapted_").startswith(about)}
    if adapted:
        adapted["worse_off_in_each"] = None
    for name in ("at_least", "by_chance"):
        summary.pop(name, None)


def _diverged(repeats: Sequence[Repeat]) -> dict[str, list[int]]:
    """Whose training was not finite, and in which rounds (of all repeats)."""
    rounds: dict[str, set[int]] = {}
    for repeat in repeats:
        for line in repeat.history:
            affected: list[Any] = [*line.get("left_out", ()), *line.get("clipped", ())]
            for client in affected:
                rounds.setdefault(client, set()).add(line["round"])
    return {client: sorted(of_client) for client, of_client in rounds.items()}


def frame(rows: Any) -> DataFrame:
    """Rows as a pandas DataFrame."""
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise GlocalError("a DataFrame needs pandas: pip install pandas.") from error
    return DataFrame(list(rows))


def empty_folder(folder: Path) -> Path:
    """A folder with nothing in it."""
    path = make_folder(folder)
    if any(path.iterdir()):
        raise GlocalError(f"the folder {path} is not empty: choose another.")
    return path
