"""Train a method on a federation and say, for each client, whether it is better off than alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from glocal.core.errors import GlocalError, shown
from glocal.core.files import make_folder
from glocal.core.progress import Report, reporter
from glocal.core.types import Params, Tree
from glocal.data.federation import Federation
from glocal.evaluation.summary import Table, Trial, client_table, summarise
from glocal.experiment import ensemble as newtest
from glocal.experiment import memory_estimate as limits
from glocal.experiment import result_files
from glocal.experiment.adaptation import Public
from glocal.experiment.adaptation_report import add_adapted
from glocal.experiment.attack_report import add_attack
from glocal.experiment.config import Order, itself
from glocal.experiment.repeat import Repeat, Trained, threads_for
from glocal.experiment.setup import ModelLike
from glocal.experiment.synthetic import Made
from glocal.methods import resolve
from glocal.nn.task import Augment, Losses, cross_entropy
from glocal.slots.method import Method, Plan, as_plan
from glocal.training.checkpoint import Keeping
from glocal.training.loop import Progress


@dataclass(frozen=True)
class Run:
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
    """Where the data came from and how it was dealt."""
    states: Tree
    """What the clients keep: ``ids`` and their states, stacked (of ``local``: their models).

    Where states are on disk, ``ids`` alone: ``trained.progress.clients.rows_of(ids)`` reads some.
    """
    settings: dict[str, Any]
    """Everything that was chosen, by the caller or by rule."""
    trained: Trained | None = field(default=None, repr=False)
    """The first repeat as it stood after its last round, for judging further; not in files."""
    yardstick: bool = False
    """Whether this is the yardstick itself: its benefit is 0 by definition."""
    repeats: tuple[Repeat, ...] = field(default=(), repr=False)
    """What each repeat came to, and (``alone``) the yardstick in each; not in files."""
    alone: tuple[Repeat, ...] = field(default=(), repr=False)

    @property
    def made(self) -> Made | None:
        """Labelled examples that the method made in the first repeat (x, y, figures), if any."""
        return self.repeats[0].made if self.repeats else None

    def save(self, folder: str | Path) -> None:
        """Write ``result.json`` and the models to a new folder."""
        path = make_folder(Path(folder))
        if any(path.iterdir()):
            raise GlocalError(f"the folder {path} is not empty: choose another.")
        result_files.save(self, path)

    def __repr__(self) -> str:
        """The verdict in a line."""
        s = self.summary
        return (
            f"<Run {self.method}: mean accuracy {s['mean']:.3f} (alone {s['local_mean']:.3f}); "
            f"{s['better_off']} better off, {s['worse_off']} worse off, "
            f"{s['undecided']} undecided of {s['clients']}>"
        )


def assembled(
    order: Order,
    name: str,
    fed: Federation,
    own: Sequence[Repeat],
    alone: Sequence[Repeat],
) -> Run:
    """All repeats of a method against all repeats of being alone, as one run."""
    yardstick = own is alone
    folds = [fed.fold(r) if r else fed for r in range(order.repeats)]
    trials = [
        Trial(fold, mine.outcome, theirs.outcome, mine.traffic)
        for fold, mine, theirs in zip(folds, own, alone, strict=True)
    ]
    first = own[0]
    rows = client_table(trials)
    summary = summarise(rows, trials)
    summary["rounds"] = 0 if yardstick else order.rounds
    if first.privacy is not None:
        summary |= {k: first.privacy[k] for k in ("epsilon", "rounds")}
        summary["privacy"] = first.privacy
    sets = [mine.made for mine in own if mine.made is not None]
    if sets:
        summary["synthetic_accuracy"] = sum(m.figures["accuracy"] for m in sets) / len(sets)
        summary["synthetic"] = sets[0].figures
    if lost := _diverged(own):
        summary["diverged"] = lost
    summary["params_published"] = first.published
    summary["parameters"] = first.parameters
    changed = [mine.adapted for mine in own if mine.adapted is not None]
    if changed:
        add_adapted(rows, summary, trials, changed)
    struck = [mine.struck for mine in own if mine.struck is not None]
    if order.attack is not None and struck:
        add_attack(rows, summary, order.attack, struck)
    found = [mine.together for mine in own if mine.together is not None]
    if found:
        summary["new_test"] = newtest.mean(found)
    settings = {
        "method": name,
        "model": first.model_name,
        "rounds": order.rounds,
        "fraction": order.fraction,
        **({"sampled": order.sampled} if order.sampled is not None else {}),
        **({"poisson": True} if order.poisson else {}),
        "repeats": order.repeats,
        "seed": order.seed,
        "engine": first.engine,
        "device": order.device,
        **({"precision": order.precision} if order.precision != "single" else {}),
        **({"adapt": order.adapt} if order.adapt is not None else {}),
        **({"attack": order.attack} if order.attack is not None else {}),
    }
    return Run(
        method=name,
        model=first.model,
        clients=rows,
        summary=summary,
        history=first.history,
        states=first.states,
        data=fed.describe,
        settings=settings,
        trained=first.trained,
        yardstick=yardstick,
        repeats=tuple(own),
        alone=tuple(alone),
    )


def _diverged(own: Sequence[Repeat]) -> dict[str, list[int]]:
    """Whose training was not finite, and in which rounds (of all repeats)."""
    rounds: dict[str, set[int]] = {}
    for repeat in own:
        for line in repeat.history:
            for client in [*line.get("left_out", ()), *line.get("clipped", ())]:
                rounds.setdefault(client, set()).add(line["round"])
    return {client: sorted(found) for client, found in rounds.items()}


def fit(
    method: str | Method | Plan,
    fed: Federation,
    *,
    model: ModelLike = "mlp",
    rounds: int = 50,
    fraction: float = 1.0,
    sampled: int | None = None,
    poisson: bool = False,
    repeats: int = 1,
    seed: int = 0,
    engine: str = "auto",
    device: str = "cpu",
    init: Mapping[str, Tensor] | str | Path | None = None,
    losses: Losses = cross_entropy,
    augment: Augment | None = None,
    yardstick: Method | str | None = None,
    validate_every: int = 0,
    new_test: bool = False,
    adapt: str | None = None,
    public: Public | None = None,
    attack: str | None = None,
    diverged: str = "fatal",
    states: str = "auto",
    precision: str = "single",
    checkpoints: str | Path | Keeping | None = None,
    progress: bool | Report | None = None,
    name: str | None = None,
    on_line: Callable[[dict[str, Any]], None] = lambda line: None,
) -> Run:
    """Train ``method`` on ``fed`` and judge every client against its own yardstick.

    Args:
        method: a spec such as ``"fedprox(mu=0.1)"``, a Method, or a Plan of stages.
        fed: from :func:`glocal.load` or :func:`glocal.federation`.
        model: a name such as ``"mlp"`` or ``"mlp(200, 200)"``, your own module, or a function that
            builds one.
        rounds: communication rounds.
        fraction: share of clients in a round.
        sampled: how many clients in a round, instead of ``fraction``.
        poisson: let every client flip a coin of that probability instead of drawing a fixed number.
        repeats: how often to repeat on another split and seed; verdicts pool over them.
        seed: of everything that is drawn.
        engine: ``auto``, ``sequential``, ``vectorised`` or ``compiled`` (vectorised, and its steps
            compiled, however short the run).
        device: ``cpu`` or ``cuda``.
        init: weights to start from, a dict or a safetensors file.
        losses: one loss per example from logits and labels.
        augment: a keyed augmentation of training batches (:mod:`glocal.nn.augment`).
        yardstick: how clients train alone, ``"local"`` with settings; the default tries three
            learning rates with early stopping.
        validate_every: record validation accuracy each so many rounds (0: after the last).
        new_test: also judge all clients' models together on data of unknown origin
            (:mod:`glocal.experiment.ensemble`).
        adapt: how each client adapts what it got: ``"best"``, ``"fine-tune"``, ``"freeze-base"``,
            ``"ewc"``, ``"distill"``, with settings, joined by ``+``
            (:mod:`glocal.experiment.adaptation`).
        public: inputs and labels that are nobody's, for ``ewc(fisher=public)``.
        attack: what malicious clients do, as in ``"sign-flip(share=0.2)"``
            (:mod:`glocal.training.attacks`).
        diverged: what becomes of a client whose training is not finite: ``"fatal"`` ends the run,
            ``"skip"`` goes on without it, ``"clip"`` uses what is left of it
            (:mod:`glocal.training.divergence`).
        states: where clients' states are kept: ``"device"``, ``"host"``, ``"disk"`` or, by their
            size, ``"auto"`` (:mod:`glocal.training.client_state.placement`). Changes nothing that
            comes out.
        precision: ``"single"``, or ``"bf16"`` for training's products and convolutions in bfloat16.
        checkpoints: a folder for them (or a :class:`glocal.training.checkpoint.Keeping`); if it
        has some of
            the same call, training goes on from the newest, to the same bits. They stay there.
        progress: show bars: on a terminal by default; or a function (what, done, total).
        name: what to call the run; the spec as typed by default.
        on_line: called with each round's line of the history.
    """
    if not isinstance(fed, Federation):
        raise GlocalError(
            f"{shown(fed)} is no federation: make one with glocal.load('digits') or "
            "glocal.federation(x, y, clients)."
        )
    plan = as_plan(resolve(method) if isinstance(method, str) else method)
    name = name or (method if isinstance(method, str) else "method")
    order = Order(
        model=model,
        rounds=rounds,
        fraction=fraction,
        sampled=sampled,
        poisson=poisson,
        repeats=repeats,
        seed=seed,
        engine=engine,
        device=device,
        init=init,
        losses=losses,
        augment=augment,
        yardstick=yardstick,
        validate_every=validate_every,
        new_test=new_test,
        adapt=adapt,
        public=public,
        attack=attack,
        diverged=diverged,
        states=states,
        precision=precision,
    )
    keeping = checkpoints
    if isinstance(checkpoints, str | Path):
        keeping = Keeping(Path(checkpoints), stop=lambda: False)
    assert keeping is None or isinstance(keeping, Keeping)
    if attack is not None and itself(plan) is not None:
        raise GlocalError("local sends nothing, so no attack can reach it: leave the attack out.")
    own: list[Repeat] = []
    alone: list[Repeat] = []
    with reporter(progress) as report:
        for r in range(repeats):
            here = order.place(fed, r)
            # What cannot be done is refused before anyone trains.
            if r == 0:
                need = order.needs(plan, here)
                limits.check(need, here.fed.x.device, checkpoints=keeping)
            elif itself(plan) is None:
                order.training(plan, here)
            title = order.title(name, r)
            with threads_for(here):
                tick = partial(report, order.title("alone", r))
                own_way = order.by_itself(order.alone(plan), here, tick, keeping)
                alone.append(own_way.figures() if r else own_way)
                if itself(plan) is not None:
                    continue

                def on_round(
                    done: Progress, new: list[dict[str, Any]], r: int = r, title: str = title
                ) -> None:
                    report(title, done.round, rounds)
                    for line in new:
                        on_line(order.line(line, r))

                on_epoch = partial(report, order.title(f"{name}, adapting", r))
                one = order.federated(plan, here, on_round, on_epoch, keeping, name)
                own.append(one.figures() if r else one)
    return assembled(order, name, fed, own or alone, alone)
