"""Train a method on a federation and say, for each client, whether it is better off than alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glocal import attacks, newtest, place, poison, runs, server, tree
from glocal.adapt import Public, techniques
from glocal.adapted import After, Offer, add_adapted, after, choose
from glocal.data.federation import Federation
from glocal.errors import ClientError, GlocalError
from glocal.evaluate import Outcome, outcomes, pick, score
from glocal.honest import Struck, add_attack
from glocal.ledger import Ledger, published
from glocal.method import Method, Plan, as_plan
from glocal.methods import resolve
from glocal.methods.local import Alone
from glocal.place import ModelLike, Place
from glocal.progress import Report, reporter
from glocal.results import Table, Trial, client_table, pool_is_valid, summarise
from glocal.sampling import Fixed, Fraction, Poisson, Sampler
from glocal.task import Augment, Losses, cross_entropy
from glocal.train import Progress, Training
from glocal.types import Params, Tree


@dataclass(frozen=True)
class Trained:
    """A training that is over, with everything needed to go on or to judge it in other ways."""

    training: Training
    progress: Progress

    def models(self) -> Params:
        """Every client's model (chosen on its validation data), stacked."""
        t = self.training
        everyone = torch.arange(len(t.fed), device=t.fed.x.device)
        return pick(t.task, t.fed, t.engine, t.models(self.progress)(everyone), everyone)[0]


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
    """What the clients keep: ``ids`` and their states, stacked (of ``local``: their models)."""
    settings: dict[str, Any]
    """Everything that was chosen, by the caller or by rule."""
    trained: Trained | None = field(default=None, repr=False)
    """The first repeat as it stood after its last round, for judging further; not in files."""
    yardstick: bool = False
    """Whether this is the yardstick itself: its benefit is 0 by definition."""
    repeats: tuple[Repeat, ...] = field(default=(), repr=False)
    """What each repeat came to, and (``alone``) the yardstick in each; not in files."""
    alone: tuple[Repeat, ...] = field(default=(), repr=False)

    def save(self, folder: str | Path) -> None:
        """Write ``result.json`` and the models to a new folder."""
        runs.save(self, runs.prepare(Path(folder)))

    def __repr__(self) -> str:
        """The verdict in a line."""
        s = self.summary
        return (
            f"<Run {self.method}: mean accuracy {s['mean']:.3f} (alone {s['local_mean']:.3f}); "
            f"{s['better_off']} better off, {s['worse_off']} worse off, "
            f"{s['undecided']} undecided of {s['clients']}>"
        )


@dataclass(frozen=True)
class Repeat:
    """What one repeat of a method, or of being alone, came to."""

    outcome: Outcome
    ledger: Ledger
    model: Params
    states: Tree
    history: list[dict[str, Any]]
    published: int
    together: dict[str, Any] | None
    """The new test, where it was asked for."""
    engine: str
    model_name: str
    parameters: int
    val_accuracy: Tensor
    """[clients] of the model each client uses: what a choice goes by."""
    adapted: After | None = None
    trained: Trained | None = field(default=None, repr=False)
    struck: Struck | None = None
    """What an attack came to, where there was one."""
    privacy: dict[str, Any] | None = None
    """What was spent, and what that assumes."""

    def figures(self) -> Repeat:
        """Without the models, which may be large: those of the first repeat are kept, no others."""
        return replace(self, trained=None, states={}, model={})


@dataclass(frozen=True)
class Order:
    """What was asked for, checked: all that a fit depends on but the method and the data."""

    model: ModelLike = "mlp"
    rounds: int = 50
    fraction: float = 1.0
    sampled: int | None = None
    poisson: bool = False
    repeats: int = 1
    seed: int = 0
    engine: str = "auto"
    device: str = "cpu"
    init: Mapping[str, Tensor] | str | Path | None = None
    losses: Losses = cross_entropy
    augment: Augment | None = None
    yardstick: Method | str | None = None
    validate_every: int = 0
    new_test: bool = False
    adapt: str | None = None
    public: Public | None = None
    attack: str | None = None

    def __post_init__(self) -> None:
        if self.attack is not None:
            attacks.parse(self.attack)
        if self.adapt is not None:
            techniques(self.adapt)
        check_whole(rounds=self.rounds, repeats=self.repeats)
        seed = self.seed
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 63:
            raise GlocalError(f"seed must be a whole number from 0 to 2^63 − 1, not {seed}.")
        place.alone_of(self.yardstick)

    def alone(self, plan: Plan) -> Alone:
        """How clients train alone: the plan itself, if that is what it is."""
        return itself(plan) or place.alone_of(self.yardstick)

    def place(self, fed: Federation, repeat: int) -> Place:
        """Where the ``repeat``-th repeat is done."""
        return place.make(
            fed,
            self.model,
            self.seed,
            repeat,
            self.engine,
            self.device,
            self.init,
            self.losses,
            self.augment,
        )

    def training(self, plan: Plan, here: Place) -> Training:
        """The rounds of a plan; refuses what does not fit the model or the sampling."""
        adversary, fed = None, here.fed
        if self.attack is not None:
            # Of all repeats the same clients, so that what became of the others can be pooled.
            adversary = attacks.parse(self.attack).on(fed, self.seed)
            fed = adversary.poisoned(fed)
        sampler = _sampler(self.fraction, self.sampled, self.poisson, len(here.fed))
        rounds, every = self.rounds, self.validate_every
        training = Training(
            plan, here.task, fed, here.engine, sampler, rounds, here.seed, every, adversary
        )
        for technique in techniques(self.adapt) if self.adapt is not None else ():
            technique.check(here.task, self.public)
        for stage in plan.stages:
            stage.method.shared_names(here.task)
            stage.method.weights.init(training.setting)
            stage.method.combine.check(training.setting)
            server.check_privacy(stage.method, here.task, training.setting)
        return training

    def by_itself(self, alone: Alone, here: Place, tick: Callable[[int, int], None]) -> Repeat:
        """Every client trains alone."""
        yard, judged = place.measured(here, alone, tick)
        together = None
        if self.new_test:
            together = newtest.stacked(here.task, here.fed, here.engine, yard.models)
        states = {"ids": torch.arange(len(here.fed)), **yard.models}
        val = yard.val_accuracy
        return Repeat(judged, Ledger(), {}, states, [], 0, together, *_facts(here), val)

    def federated(
        self,
        plan: Plan,
        here: Place,
        on_round: Callable[[Progress], None] = lambda progress: None,
        on_epoch: Callable[[int, int], None] = lambda done, total: None,
    ) -> Repeat:
        """Clients train together, and then adapt what they got, where that was asked for."""
        training = self.training(plan, here)
        done, stopped = self._rounds(training, here, on_round)
        trained = Trained(training, done)
        judged, given, val = judge(trained, here.fed)
        adapted = None
        if self.adapt is not None:
            wanted = techniques(self.adapt)
            where = (here.task, here.fed, here.engine)
            adapted = after(*where, wanted, given, here.seed, public=self.public, tick=on_epoch)
        ids, states = done.clients.saved()
        return Repeat(
            judged,
            done.ledger,
            server.first_parameters(here.task, done.server),
            {"ids": ids, **states},
            done.history,
            _published(training, done),
            newtest.new_test(trained) if self.new_test else None,
            *_facts(here),
            val,
            adapted,
            trained,
            struck(training, here, given, stopped),
            _spent(training, done),
        )

    def _rounds(
        self, training: Training, here: Place, on_round: Callable[[Progress], None]
    ) -> tuple[Progress, int | None]:
        """All rounds; or those until an attack left nothing finite to train, and which that was."""
        progress = training.begin(here.task.params)
        try:
            return training.run(progress, on_round), None
        except ClientError:
            if training.adversary is None:
                raise
            # That the federation ends there is what was to be found out: it is judged as it stands.
            return progress, progress.round + 1

    def run(
        self,
        name: str,
        fed: Federation,
        own: Sequence[Repeat],
        alone: Sequence[Repeat],
    ) -> Run:
        """All repeats of a method against all repeats of being alone, as one run."""
        yardstick = own is alone
        folds = [fed.fold(r) if r else fed for r in range(self.repeats)]
        trials = [
            Trial(fold, mine.outcome, theirs.outcome, mine.ledger)
            for fold, mine, theirs in zip(folds, own, alone, strict=True)
        ]
        first = own[0]
        rows = client_table(trials)
        summary = summarise(rows, trials)
        summary["rounds"] = 0 if yardstick else self.rounds
        if first.privacy is not None:
            summary |= {k: first.privacy[k] for k in ("epsilon", "rounds")}
            summary["privacy"] = first.privacy
        summary["params_published"] = first.published
        summary["parameters"] = first.parameters
        changed = [mine.adapted for mine in own if mine.adapted is not None]
        if changed:
            add_adapted(rows, summary, trials, changed)
        struck = [mine.struck for mine in own if mine.struck is not None]
        if self.attack is not None and struck:
            add_attack(rows, summary, self.attack, struck)
        found = [mine.together for mine in own if mine.together is not None]
        if found:
            summary["new_test"] = newtest.mean(found)
        settings = {
            "method": name,
            "model": first.model_name,
            "rounds": self.rounds,
            "fraction": self.fraction,
            **({"sampled": self.sampled} if self.sampled is not None else {}),
            **({"poisson": True} if self.poisson else {}),
            "repeats": self.repeats,
            "seed": self.seed,
            "engine": first.engine,
            "device": self.device,
            **({"adapt": self.adapt} if self.adapt is not None else {}),
            **({"attack": self.attack} if self.attack is not None else {}),
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

    def line(self, line: Mapping[str, Any], repeat: int) -> dict[str, Any]:
        """A round's line, with its repeat where there are several."""
        return {**line, **({"repeat": repeat + 1} if self.repeats > 1 else {})}

    def title(self, what: str, repeat: int) -> str:
        """What a progress bar says."""
        return f"{what} ({repeat + 1} of {self.repeats})" if self.repeats > 1 else what


def choice(done: Mapping[str, Run], fed: Federation) -> Run:
    """What becomes of clients that choose, among all these runs, on their own validation data.

    Everything chosen from must have been trained, so all of its traffic counts.
    """
    offers = {name: run for name, run in done.items() if not run.yardstick}
    if not offers:
        raise GlocalError("there is nothing to choose from but being alone: add a method.")
    first = next(iter(offers.values()))
    trials, picks = [], []
    for r, alone in enumerate(first.alone):
        fold = fed.fold(r) if r else fed
        others = {}
        for name, run in offers.items():
            one = run.repeats[r]
            others[name] = Offer(one.outcome, one.val_accuracy)
            if one.adapted is not None:
                others[f"{name}, adapted"] = Offer(one.adapted.outcome, one.adapted.val_accuracy)
        own = Offer(alone.outcome, alone.val_accuracy)
        outcome, chosen = choose(own, others, fold.val.counts())
        trials.append(Trial(fold, outcome, alone.outcome, Ledger()))
        picks.append(chosen)
    rows = client_table(trials)
    for row, name in zip(rows, picks[0], strict=True):
        row["model"] = name
    summary = summarise(rows, trials)
    summary["rounds"], summary["parameters"] = first.summary["rounds"], first.summary["parameters"]
    for count in ("params_up", "params_down", "params_published"):
        summary[count] = sum(run.summary[count] for run in offers.values())
    summary["choice"] = dict(Counter(name for chosen in picks for name in chosen))
    settings = {**first.settings, "method": CHOICE}
    return Run(CHOICE, {}, rows, summary, [], dict(fed.describe), {}, settings)


CHOICE = "choice"
"""What the row of a comparison is called in which each client chooses."""


def itself(plan: Plan) -> Alone | None:
    """The plan as a way of being alone, if it is one."""
    own = plan.stages[0].method.local if len(plan.stages) == 1 else None
    return own if isinstance(own, Alone) else None


def judge(trained: Trained, fed: Federation) -> tuple[Outcome, Params, Tensor]:
    """What every client's model does on ``fed``, these models, and their validation accuracies.

    An attack may have changed the data that was trained on: clients are judged on what is theirs.
    """
    t = trained.training
    judged = outcomes(
        t.task,
        fed,
        t.engine,
        t.models(trained.progress),
        pool=pool_is_valid(fed),
        one_for_all=t.one_for_all(trained.progress),
    )
    given = trained.models()
    everyone = torch.arange(len(fed), device=fed.x.device)
    val, _ = score(t.task, fed, t.engine, given, fed.val, everyone)
    return judged, given, val


@contextmanager
def threads_for(here: Place) -> Iterator[None]:
    """One thread for small models, as many as there were for the rest."""
    before = torch.get_num_threads()
    if here.small:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def struck(training: Training, here: Place, models: Params, stopped: int | None) -> Struck | None:
    """What the attack came to, if there was one."""
    adversary = training.adversary
    if adversary is None:
        return None
    mark = adversary.attack.trigger
    if mark is None:
        return Struck(adversary.who, stopped, None)
    success = poison.success(mark, here.task, here.fed, here.engine, models)
    return Struck(adversary.who, stopped, success)


def _facts(here: Place) -> tuple[str, str, int]:
    return here.engine.name, here.model_name, tree.count(here.task.params)


def _spent(training: Training, done: Progress) -> dict[str, Any] | None:
    privacy = training.method(done).privacy
    return privacy.spent(done.server["privacy"], training.setting) if privacy else None


def _published(training: Training, done: Progress) -> int:
    """As papers count: what is shared goes down to everybody and up from the sampled."""
    setting = training.setting
    sizes = [
        up.get("shared", 0) // max(1, line["cohort"])
        for up, line in zip(done.ledger.up, done.history, strict=True)
    ]
    return sum(published(1, size, setting.clients, setting.fraction) for size in sizes)


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
        engine: ``auto``, ``sequential`` or ``vectorised``.
        device: ``cpu`` or ``cuda``.
        init: weights to start from, a dict or a safetensors file.
        losses: one loss per example from logits and labels.
        augment: a keyed augmentation of training batches (:mod:`glocal.augment`).
        yardstick: how clients train alone, ``"local"`` with settings; the default tries three
            learning rates with early stopping.
        validate_every: record validation accuracy each so many rounds (0: after the last).
        new_test: also judge all clients' models together on data of unknown origin
            (:mod:`glocal.newtest`).
        adapt: how each client adapts what it got: ``"best"``, ``"fine-tune"``, ``"freeze-base"``,
            ``"ewc"``, ``"distill"``, with settings, joined by ``+`` (:mod:`glocal.adapt`).
        public: inputs and labels that are nobody's, for ``ewc(fisher=public)``.
        attack: what malicious clients do, as in ``"sign-flip(share=0.2)"``
            (:mod:`glocal.attacks`).
        progress: show bars: on a terminal by default; or a function (what, done, total).
        name: what to call the run; the spec as typed by default.
        on_line: called with each round's line of the history.
    """
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
    )
    if attack is not None and itself(plan) is not None:
        raise GlocalError("local sends nothing, so no attack can reach it: leave the attack out.")
    own: list[Repeat] = []
    alone: list[Repeat] = []
    with reporter(progress) as report:
        for r in range(repeats):
            here = order.place(fed, r)
            if itself(plan) is None:
                order.training(plan, here)  # what cannot be done is refused before anyone trains
            title = order.title(name, r)
            with threads_for(here):
                tick = partial(report, order.title("alone", r))
                alone.append(order.by_itself(order.alone(plan), here, tick))
                if itself(plan) is not None:
                    continue

                def on_round(done: Progress, r: int = r, title: str = title) -> None:
                    report(title, done.round, rounds)
                    on_line(order.line(done.history[-1], r))

                on_epoch = partial(report, order.title(f"{name}, adapting", r))
                one = order.federated(plan, here, on_round, on_epoch)
                own.append(one.figures() if r else one)
    return order.run(name, fed, own or alone, alone)


def _sampler(fraction: float, sampled: int | None, poisson: bool, clients: int) -> Sampler:
    if sampled is not None:
        check_whole(sampled=sampled)
        if sampled > clients:
            raise GlocalError(
                f"{sampled} clients a round cannot be drawn from {clients}: ask for fewer."
            )
        return Poisson(sampled / clients) if poisson else Fixed(sampled)
    return Poisson(fraction) if poisson else Fraction(fraction)


def check_whole(**counts: int) -> None:
    """Refuse what is not a whole number of 1 or more."""
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise GlocalError(f"{name} must be a whole number of 1 or more, not {value}.")
