"""What does it cost to hide protected attributes, and are they hidden? The trade-off over λ.

Each method is trained with an adversary (:mod:`glocal.slots.adversary`) at every λ: at 0 it changes
nothing in the model, and its AUC is what a method that does not care gives away. Clients of methods
that keep layers private have adversaries of their own; where all is shared, the adversary is, too.

The λ that is shown as chosen is chosen in each repeat on its validation data: of those whose mean
validation accuracy is at least ``least`` (or, where none is, of the most accurate), the one from
which the better of two fresh adversaries recovers least.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from glocal.core.errors import GlocalError, shown
from glocal.core.progress import Report, silent
from glocal.core.types import Params
from glocal.core.validation import not_negative
from glocal.data.attributes import Attributes
from glocal.data.federation import Federation
from glocal.data.schema import needs_classes
from glocal.evaluation.attribute_probe import PROBES
from glocal.evaluation.fair_figures import Guesses, base_rates, fair_figures
from glocal.experiment import memory_estimate
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.repeat import Trained
from glocal.experiment.runner import Callbacks, Federated, memory_needed, runner_of
from glocal.experiment.setup import Setup
from glocal.methods import resolve
from glocal.nn.representation import cut
from glocal.nn.task import Task
from glocal.slots.adversary import guesses
from glocal.slots.auxiliaries import PREFIX
from glocal.slots.method import Method, as_plan
from glocal.studies.repeats import about, all_ids, interval

LAMS = (0.0, 0.3, 1.0, 3.0, 10.0)


@dataclass(frozen=True)
class Against:
    """How the adversary is trained, and on what."""

    how: str = "reversal"
    rate: float = 1.0
    steps: int = 1
    at: str | None = None
    """The layer whose input is the representation; None: where private layers end."""
    pretrain: int = 0
    """Epochs in which clients' own layers and adversaries train before the first round."""
    lam_local: float = 0.0
    """λ meanwhile."""
    optimiser: str | None = None
    """The adversary's; None: the client's."""
    hidden: int = 32
    """The width of its hidden layers."""


REVERSAL = Against()

Cell = dict[str, Any]
"""The figures of one method at one λ in one repeat."""

OF_TASK = ("accuracy", "auc")
OF_ATTRIBUTE = ("adversary", *PROBES, "demographic_parity", "equalised_odds")


def fair_representations(
    methods: Sequence[str],
    config: Config,
    *,
    lams: Sequence[float] = LAMS,
    against: Against = REVERSAL,
    least: float = 0.0,
    report: Report = silent,
) -> dict[str, Any]:
    """Every method at every λ in every repeat, and the λ that validation data chooses."""
    fed = config.federation()
    specs = all_specs(methods, lams, config, fed, against)
    several = repeated(config, fed)
    cells = {key: figures(spec, several, report) for key, spec in specs.items()}
    return summarised(cells, least) | about_study(config, fed, against)


def about_study(config: Config, fed: Federation, against: Against) -> dict[str, Any]:
    """Where the numbers come from."""
    return {
        "study": "fair representations",
        **about(fed, config.arguments()),
        "how": against.how,
        "pretrain": against.pretrain,
        "base_rates": base_rates(fed),
    }


def repeated(config: Config, fed: Federation) -> list[Setup]:
    """The data and the model of each repeat, which are the same for all methods."""
    return [setups.make(config, fed, r) for r in range(config.repeats)]


def figures(spec: str, several: Sequence[Setup], report: Report = silent) -> list[Cell]:
    """The figures of a method in each repeat; as many as fit into memory train side by side."""
    runner = runner_of(spec, spec)
    if not isinstance(runner, Federated):
        raise GlocalError(f"{spec} has no server and no adversary: choose a federated method.")
    device = several[0].fed.x.device
    lanes = memory_estimate.lanes(memory_needed(runner, several[0]), device, len(several))
    cells = []
    for first in range(0, len(several), lanes):
        some = several[first : first + lanes]
        with some[0].threads():
            repeats = runner.run_side_by_side(some, Callbacks(report), None)
            cells += [figures_of(repeat.trained) for repeat in repeats if repeat.trained]
    return cells


def all_specs(
    methods: Sequence[str],
    lams: Sequence[float],
    config: Config,
    fed: Federation,
    against: Against = REVERSAL,
) -> dict[tuple[str, float], str]:
    """The spec of each method at each λ; raises, before anything is trained, if one cannot be."""
    needs_classes(fed, "this study")
    if fed.attributes is None:
        raise GlocalError(
            "this study hides protected attributes, and the data has none: name the columns with "
            "--protected, or use --data adult."
        )
    _check_groups(fed, fed.attributes)
    if not lams:
        raise GlocalError("give at least one λ.")
    for lam in lams:
        not_negative(lam=lam)
    task = setups.make(config, fed, 0).task
    keeping = [method for method in methods if _last(method).shared.name != "everything"]
    layer = against.at or _layer(_last(keeping[0]) if keeping else None, task)
    pairs = [(method, lam) for method in dict.fromkeys(methods) for lam in sorted(set(lams))]
    return {(method, lam): with_adversary(method, lam, against, layer) for method, lam in pairs}


def with_adversary(method: str, lam: float, against: Against, layer: str) -> str:
    """The spec of a method with an adversary; where all is shared, it acts on layer ``layer``."""
    last, at, after = _last(method), against.at, ""
    if last.auxiliary is not None:
        raise GlocalError(
            f"this study adds the adversary itself: leave {last.auxiliary.name} out of "
            f"{shown(method)}."
        )
    settings = f"lam={lam:g}, how={against.how}, rate={against.rate:g}, steps={against.steps}"
    settings += f", hidden={against.hidden}"
    if against.optimiser is not None:
        settings += f", optimiser={against.optimiser}"
    if last.shared.name == "everything":
        settings += ", shared=true"
        at = layer
    elif against.pretrain:
        after = f"+pretrain(epochs={against.pretrain}, weight={against.lam_local:g})"
    if at is not None:
        settings += f", at='{at}'"
    spec = f"{method}+adversary({settings}){after}"
    resolve(spec)
    return spec


def _check_groups(fed: Federation, attributes: Attributes) -> None:
    """Raise if no client has people of two kinds: its name then says what they are."""
    each = [attributes.codes[fed.test.of(k)] for k in range(len(fed))]
    for place, name in enumerate(attributes.names):
        if all(len(set(codes[:, place].tolist())) < 2 for codes in each):
            raise GlocalError(
                f"no client has test rows with two values of {name!r}, so that nothing can be "
                "found out about it within a client: leave it out."
            )


def _last(method: str) -> Method:
    """The method of the last stage, whose models are evaluated."""
    return as_plan(resolve(method)).stages[-1].method


def _layer(method: Method | None, task: Task) -> str:
    """The layer that reads a method's private representation; without one, the last."""
    if method is None:
        return task.names[-1].rpartition(".")[0]
    return cut(task, set(task.names) - method.shared_names(task))


def figures_of(done: Trained) -> Cell:
    """What the models of a finished training give away, and how well they do."""
    t, method = done.training, done.training.method(done.progress)
    assert method.auxiliary is not None
    layer = cut(t.task, set(t.task.names) - method.shared_names(t.task), method.auxiliary.at)
    adversary = trained_adversary(done)
    return fair_figures(t.engine, t.task, done.models(), t.fed, layer, adversary, t.seed)


def trained_adversary(done: Trained) -> Guesses:
    """The adversary that was trained with the models: one for all, or each client's own."""
    t, progress = done.training, done.progress
    auxiliary = t.method(progress).auxiliary
    a: Params
    if auxiliary is not None and auxiliary.shared:
        params = progress.server["params"]
        a, dim = {k: v for k, v in params.items() if k.startswith(f"{PREFIX}.")}, None
    else:
        make = t.make(progress, t.halves[progress.stage])
        state = progress.clients.gather(all_ids(t.fed), make)
        while "auxiliary" not in state:  # other components keep their own beside it
            state = state["inner"]
        a, dim = state["auxiliary"], 0

    def logits(h: Tensor) -> Mapping[int, Tensor]:
        with torch.no_grad():
            return torch.func.vmap(guesses, (dim, 0))(a, h)

    return logits


def summarised(cells: Mapping[tuple[str, float], Sequence[Cell]], least: float) -> dict[str, Any]:
    """A row for each method and λ, and one for each method with the λ chosen on validation data."""
    rows = [{"method": m, "lam": lam, **over_repeats(c)} for (m, lam), c in cells.items()]
    chosen = []
    for method in dict.fromkeys(m for m, _ in cells):
        by_lam = {lam: found for (m, lam), found in cells.items() if m == method}
        repeats = range(len(next(iter(by_lam.values()))))
        picks = [choice({lam: found[r] for lam, found in by_lam.items()}, least) for r in repeats]
        picked = [by_lam[lam][r] for r, lam in enumerate(picks)]
        chosen.append({"method": method, "lams": picks, **over_repeats(picked)})
    return {"rows": rows, "chosen": chosen, "least": least}


def choice(by_lam: Mapping[float, Cell], least: float) -> float:
    """The λ that validation data of a repeat chooses."""
    enough = [lam for lam, cell in by_lam.items() if cell["val_accuracy"] >= least]
    if not enough:
        best = max(cell["val_accuracy"] for cell in by_lam.values())
        enough = [lam for lam, cell in by_lam.items() if cell["val_accuracy"] == best]

    def order(lam: float) -> tuple[float, float]:
        # Below one half is chance, too; of equals, the more accurate.
        return max(recovered(by_lam[lam], "val_"), 0.5), -by_lam[lam]["val_accuracy"]

    return min(enough, key=order)


def recovered(cell: Cell, where: str = "") -> float:
    """The AUC of the better fresh adversary, mean over attributes."""
    return max(_of_attributes(cell, f"{where}{probe}") for probe in PROBES)


def _of_attributes(cell: Cell, figure: str) -> float:
    return fmean(each[figure] for each in cell["attributes"].values())


def over_repeats(cells: Sequence[Cell]) -> dict[str, Any]:
    """Each figure's mean over repeats and its interval; attributes together and each by itself."""
    task = {k: _interval([c[k] for c in cells]) for k in (*OF_TASK, "val_accuracy")}
    together: dict[str, Callable[[Cell], float]] = {"post_fit": recovered}
    together |= {k: lambda c, k=k: _of_attributes(c, k) for k in ("adversary", *PROBES)}  # type: ignore[misc]
    return {
        **task,
        **{k: _interval([figure(c) for c in cells]) for k, figure in together.items()},
        "attributes": {
            name: {k: _interval([c["attributes"][name][k] for c in cells]) for k in OF_ATTRIBUTE}
            for name in cells[0]["attributes"]
        },
    }


def _interval(values: Sequence[float | None]) -> dict[str, Any] | None:
    known = [value for value in values if value is not None]
    return interval(known) if known else None
