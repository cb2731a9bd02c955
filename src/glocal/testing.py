"""The contract as a test that any method can be put through, your own too.

::

    from glocal.testing import check_method

    def test_my_method():
        check_method(Method(local=MyLocal()))

A method that passes runs on every engine alike, can be put down and taken up, keeps what is private
at home, and gives the same result for the same seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Downlink, Params, Tree, Uplink
from glocal.data.federation import Federation, federation
from glocal.engines import Engine, Sequential, Vectorised, Work
from glocal.engines.base import Ahead, Look
from glocal.evaluation.evaluate import outcomes
from glocal.evaluation.summary import pool_is_valid
from glocal.methods import resolve
from glocal.nn import models
from glocal.nn.task import Augment, Task
from glocal.slots.client import Local
from glocal.slots.method import Method, Plan, as_plan
from glocal.training import server
from glocal.training.checkpoint import packed, unpacked
from glocal.training.checkpoint_files import Series
from glocal.training.loop import COHORT, Progress, Training
from glocal.training.sampling import Fixed, Sampler

SIZES = (5, 9, 14, 23, 41, 12)
"""Examples of each client of the federation that is used where none is given."""


def check_method(
    method: str | Method | Plan,
    *,
    model: str | nn.Module | None = None,
    fed: Federation | None = None,
    rounds: int = 3,
    sampler: Sampler | None = None,
    augment: Augment | None = None,
    tolerance: float = 1e-4,
    compiled: bool = False,
) -> None:
    """Put a method through the contract; the first rule it breaks is an ``AssertionError``.

    - *Inputs unmodified*: a round leaves what it was given as it was.
    - *Structure stable*: the states of server and clients keep their names, shapes and types.
    - *Only the shared travels*: the update has the shared parameters and no others.
    - *Same seed, same bits*; and *another seed differs*, if the method trains at all.
    - *Frozen when finished*: a client does not depend on how long the others of its cohort are.
    - *Engines agree* on server state, client states and uplinks, round by round.
    - *Saved and loaded* after any round, a run goes on with the same bits.
    - *Order does not matter*: a cohort in another order is the same cohort.
    - *Nothing private travels*: nothing that is sent is a piece of a client's state (a single
      number, or a constant, can be so by chance and is passed over), and nothing that one client
      sends depends on the state of another.
    - *Candidates* have the model's names and shapes, and can be evaluated.

    Args:
        method: A spec, a Method or a Plan.
        model: Of the parameters; a small MLP by default.
        fed: Six clients of 5 to 41 examples by default.
        rounds: How many; a plan needs enough to reach its last stage.
        sampler: Half of the clients in each round by default. The seed is chosen so that, if it can
            be, some client joins late and another never.
        augment: Of the batches.
        tolerance: The largest difference allowed, of any number from its counterpart, times the
            largest magnitude in its leaf or 1, where bits cannot be the same: engines add up in
            different orders.
        compiled: Whether compiled steps have to agree as well, which takes seconds to a minute for
            each phase; without a C++ compiler they are what they were, and a line says so.

    Raises:
        AssertionError: Which rule was broken, where, and by how much.
        GlocalError: If the method, the model and the data do not fit together to begin with.
    """
    plan = as_plan(resolve(method) if isinstance(method, str) else method)
    fed = ragged() if fed is None else fed
    if model is None or isinstance(model, str):
        shape = tuple(fed.x.shape[1:])
        model = models.build(model or "mlp(7)", input_shape=shape, classes=fed.classes)
    task = Task(model, augment=augment)
    sampler = Fixed(max(1, len(fed) // 2)) if sampler is None else sampler
    training = Training(plan, task, fed, Sequential(), sampler, rounds, 0)
    training = replace(training, seed=_telling_seed(training))
    kit = _Kit(training, tolerance)
    kit.another_seed()
    kit.frozen()
    kit.engines_agree()
    if compiled:
        kit.agrees("compiled", Vectorised(compiled=True))
    kit.saved_and_loaded()
    kit.order()
    kit.private()
    kit.candidates()


def ragged() -> Federation:
    """Six clients of clearly different sizes; three classes of six features."""
    owner = [k for k, size in enumerate(SIZES) for _ in range(size)]
    key = rng.key(7)
    x = rng.normal(rng.fold(key, 0), (len(owner), 6))
    y = (x @ rng.normal(rng.fold(key, 1), (6, 3))).argmax(1)
    return federation(x, y, clients=owner)


def _cohorts(training: Training) -> list[list[int]]:
    """Who takes part in each round."""
    clients = len(training.fed)
    return [
        training.sampler.cohort(clients, training.key(COHORT, r)).tolist()
        for r in range(training.rounds)
    ]


def _telling_seed(training: Training) -> int:
    """The first seed by which somebody joins late and somebody never; 0 if there is none."""
    for seed in range(100):
        first, *later = map(set, _cohorts(replace(training, seed=seed)))
        joined = set[int]().union(*later)
        if first & joined and joined - first and len(first | joined) < len(training.fed):
            return seed
    return 0


@dataclass(frozen=True)
class _Round:
    """What a round was given, and what came of it."""

    work: Work
    uplink: Uplink
    states: Tree


@dataclass
class _Watch:
    """An engine that looks on while another one runs a round."""

    engine: Engine
    method: Method
    rounds: list[_Round]

    @property
    def name(self) -> str:
        return self.engine.name

    def round(self, work: Work) -> tuple[Uplink, Tree]:
        given = _inputs(work)
        before = _clone(given)
        try:
            uplink, states = self.engine.round(work)
        except GlocalError as error:
            raise AssertionError(f"engines agree: {self.name} cannot run it: {error}") from error
        rule = f"inputs unmodified ({self.name})"
        _same(rule, "what the round was given", _inputs(work), before, exactly=True)
        rule = f"structure stable ({self.name})"
        _alike(rule, "client state", _form(states), _form(work.states))
        self._names(work.task, uplink.update)
        self.rounds.append(_Round(work, uplink, states))
        return uplink, states

    def _names(self, task: Task, update: Params) -> None:
        """The update has the shared parameters, all of them and no others."""
        shared = self.method.shared_names(task)
        rule = f"only the shared travels ({self.name})"
        want = _form({k: v.unsqueeze(0) for k, v in task.params.items() if k in shared})
        _alike(rule, "update", _form(update), want)

    def candidates(
        self, task: Task, local: Local, down: Downlink, states: Tree, clients: int
    ) -> dict[str, Params]:
        return self.engine.candidates(task, local, down, states, clients)

    def examine(
        self, look: Look, models: Params, x: Tensor, y: Tensor, rows: Tensor
    ) -> dict[str, Tensor]:
        return self.engine.examine(look, models, x, y, rows)


@dataclass(frozen=True)
class _Trace:
    """A whole run: the state of the server and of the clients after each round, and the rounds."""

    server: list[Tree]
    clients: list[Tree]
    rounds: list[_Round]
    end: Progress


class _Kit:
    def __init__(self, training: Training, tolerance: float) -> None:
        self.training = training
        self.tolerance = tolerance
        self.engines: tuple[Engine, ...] = (Sequential(), Vectorised())
        self.traces = {e.name: self.twice(e) for e in self.engines}
        self.in_last_stage(self.traces["sequential"].end)
        # Rounds of everybody after the run: in the second nobody's state is the first it had.
        self.everybody, self.before = self.settled()
        self.together = {e.name: e.round(self.everybody) for e in self.engines}

    def on(self, engine: Engine, seed: int | None = None) -> Training:
        seed = self.training.seed if seed is None else seed
        return replace(self.training, engine=engine, seed=seed)

    def run(self, training: Training, progress: Progress | None = None) -> _Trace:
        """A run, watched; from where it stands, or from the start."""
        progress = progress or training.begin(training.task.params)
        trace = _Trace([], [], [], progress)
        while progress.round < training.rounds:
            method, began = training.method(progress), _clone(progress.server)
            watch = _Watch(training.engine, method, trace.rounds)
            stage = progress.stage
            replace(training, engine=watch).one_round(progress)
            if progress.stage == stage:
                rule = f"structure stable ({training.engine.name})"
                _alike(rule, "server state", _form(progress.server, 0), _form(began, 0))
            trace.server.append(_clone(progress.server))
            ids, states = progress.clients.saved()
            trace.clients.append(_clone({"ids": ids, **states}))
        return trace

    def settled(self) -> tuple[Work, Tree]:
        """A round of everybody in which nobody is new, and the server's state before it."""
        training, end = self.on(self.engines[0]), self.traces["sequential"].end
        method = training.method(end)
        local = method.client_half(training.task)
        params = server.first_parameters(training.task, end.server)
        before = _clone(params)
        local.init(training.task, params, training.key(-2, 3))
        _same("inputs unmodified (init)", "what a client received", params, before, exactly=True)
        ids = torch.arange(len(training.fed), device=training.fed.x.device)
        work = Work(
            task=training.task,
            local=local,
            fed=training.fed,
            down=server.broadcast(method, end.server, end.round, training.setting),
            ids=ids,
            states=end.clients.gather(ids, training.make(end, local)),
            key=training.key(-2, 0),
            needs_loss=method.weights.needs_loss,
        )
        watch = _Watch(training.engine, method, [])
        uplink, states = watch.round(work)
        after = self.reduce(end.server, uplink)
        down = server.broadcast(method, after, end.round + 1, training.setting)
        return replace(work, down=down, states=states, key=training.key(-2, 1)), after

    def reduce(self, state: Tree, uplink: Uplink) -> Tree:
        method = self.training.method(self.traces["sequential"].end)
        given = {"server state": state, "uplink": _sent(uplink)}
        before = _clone(given)
        key = self.training.key(-2, 2)
        after, _ = server.reduce(method, state, uplink, self.training.setting, key)
        _same("inputs unmodified (server)", "what it was given", given, before, exactly=True)
        return after

    def twice(self, engine: Engine) -> _Trace:
        """A run that comes out the same when it is run again."""
        first, again = self.run(self.on(engine)), self.run(self.on(engine))
        self.compare(f"same seed, same bits ({engine.name})", again, first, exactly=True)
        return first

    def in_last_stage(self, end: Progress) -> None:
        stages = self.training.plan.stages
        if end.stage + 1 < len(stages):
            raise GlocalError(
                f"{self.training.rounds} rounds end in stage {stages[end.stage].name!r}, so the "
                "later ones would go unchecked: give more rounds."
            )

    def another_seed(self) -> None:
        first = self.traces["vectorised"]
        if not _trains(first) or not all(
            s.method.local.batch_size for s in self.training.plan.stages
        ):
            return  # without mini-batches there may be nothing to draw
        other = self.run(self.on(Vectorised(), seed=self.training.seed + 1))
        if _equal(
            {"s": other.server[-1], "c": other.clients[-1]},
            {"s": first.server[-1], "c": first.clients[-1]},
        ):
            raise AssertionError("another seed differs: the same bits came of two seeds.")

    def frozen(self) -> None:
        uplink, states = self.together["vectorised"]
        rule = "frozen when finished (vectorised)"
        for i, name in enumerate(self.training.fed.names):
            alone, kept = Vectorised().round(self.everybody.subset(slice(i, i + 1)))
            with_others = _sent(_pick(uplink, [i])), tree.row(states, [i])
            where = f"client {name}, by itself against with all others,"
            self.close(rule, f"{where} uplink", _sent(alone), with_others[0])
            self.close(rule, f"{where} state", kept, with_others[1])

    def engines_agree(self) -> None:
        one, all_at_once = (self.traces[e.name] for e in self.engines)
        self.compare("engines agree", all_at_once, one)
        uplink, states = self.together["sequential"]
        other, kept = self.together["vectorised"]
        self.close("engines agree", "uplink of everybody", _sent(other), _sent(uplink))
        self.close("engines agree", "client states of everybody", kept, states)
        # As on a GPU, and where steps are compiled: in blocks of two, one of them not full.
        self.agrees("in blocks", Vectorised(in_blocks=True))

    def agrees(self, how: str, engine: Engine) -> None:
        rule, (uplink, states) = f"engines agree ({how})", self.together["sequential"]
        for again in ("", ", again"):  # the second time on buffers that were used before
            work = replace(self.everybody, ahead=Ahead(steps=0, cohort=2))
            other, kept = engine.round(work)
            self.close(rule, f"uplink{again}", _sent(other), _sent(uplink))
            self.close(rule, f"client states{again}", kept, states)

    def saved_and_loaded(self) -> None:
        training = self.on(Vectorised())
        whole = self.traces["vectorised"]
        progress = training.begin(training.task.params)
        for r in range(training.rounds - 1):
            training.one_round(progress)
            rest = self.run(training, _reloaded(training, progress))
            rule = f"saved and loaded after round {r + 1}"
            for t, state in enumerate(rest.server, r + 1):
                where = f"after round {t + 1}"
                _same(rule, f"server state {where}", state, whole.server[t], exactly=True)
                kept = rest.clients[t - r - 1]
                _same(rule, f"client states {where}", kept, whole.clients[t], exactly=True)

    def order(self) -> None:
        turned = list(reversed(range(len(self.training.fed))))
        work = replace(
            self.everybody,
            ids=self.everybody.ids[turned],
            states=tree.row(self.everybody.states, turned),
        )
        for engine in self.engines:
            rule = f"order does not matter ({engine.name})"
            uplink, states = self.together[engine.name]
            other, kept = engine.round(work)
            self.close(rule, "uplink", _sent(_pick(other, turned)), _sent(uplink))
            self.close(rule, "client states", tree.row(kept, turned), states)
            after = self.reduce(self.before, other), self.reduce(self.before, uplink)
            self.close(rule, "server state", *after)

    def private(self) -> None:
        work = self.everybody
        if not tree.leaves(work.states):
            return
        for engine in self.engines:
            rule = f"nothing private travels ({engine.name})"
            uplink, states = self.together[engine.name]
            sent = {"update": uplink.update, "extra": uplink.extra}
            for when, kept in (("had", work.states), ("then had", states)):
                for name, leaf, theirs in _found(sent, kept):
                    raise AssertionError(
                        f"{rule}: {name} of the uplink is {leaf} of a state that client {theirs} "
                        f"{when}."
                    )
            for j, who in enumerate(self.training.fed.names):
                others = [i for i in range(len(self.training.fed)) if i != j]
                touched = replace(work, states=tree.map(lambda x, j=j: _nudged(x, j), work.states))
                other, _ = engine.round(touched)
                now, then = _sent(_pick(other, others)), _sent(_pick(uplink, others))
                what = f"with another state of client {who}, the other clients' uplink"
                self.close(rule, what, now, then)

    def candidates(self) -> None:
        work, fed, task = self.everybody, self.training.fed, self.training.task
        before = _clone(_inputs(work))
        found = {
            e.name: e.candidates(task, work.local, work.down, work.states, len(fed))
            for e in self.engines
        }
        rule = "inputs unmodified (candidates)"
        _same(rule, "what they were made of", _inputs(work), before, exactly=True)
        want = _form({k: v.unsqueeze(0) for k, v in task.params.items()})
        for name, models_ in found["sequential"].items():
            _alike("candidates", f"candidate {name!r}", _form(models_), want)
        self.close("engines agree", "candidates", found["vectorised"], found["sequential"])
        for engine in self.engines:
            training, trace = self.on(engine), self.traces[engine.name]
            models_of = training.models(trace.end)
            seen = outcomes(task, fed, engine, models_of, pool=pool_is_valid(fed))
            accuracy = seen.metrics["accuracy"]
            if len(accuracy) != len(fed) or not all(0 <= a <= 1 for a in accuracy):
                raise AssertionError(
                    f"candidates ({engine.name}): the clients' accuracies are {accuracy}."
                )

    def compare(self, rule: str, a: _Trace, b: _Trace, *, exactly: bool = False) -> None:
        """Two runs, round by round: first what was sent, which is where a difference begins."""
        for x, y in zip(a.rounds, b.rounds, strict=True):
            what = f"uplink of round {int(x.work.down['round']) + 1}"
            self.close(rule, what, _sent(x.uplink), _sent(y.uplink), exactly=exactly)
        for what, left, right in (
            ("client states", a.clients, b.clients),
            ("server state", a.server, b.server),
        ):
            for t, (now, then) in enumerate(zip(left, right, strict=True)):
                self.close(rule, f"{what} after round {t + 1}", now, then, exactly=exactly)

    def close(self, rule: str, what: str, a: Tree, b: Tree, *, exactly: bool = False) -> None:
        _same(rule, what, a, b, exactly=exactly, tolerance=self.tolerance)


def _reloaded(training: Training, progress: Progress) -> Progress:
    """The progress through a checkpoint and back, without whatever the old one shares with it."""
    with TemporaryDirectory() as folder:
        series = Series(Path(folder))
        series.write(progress.round, *packed(progress))
        kept = series.newest()
    assert kept is not None
    return unpacked(kept, training)


def _inputs(work: Work) -> Tree:
    """Every tensor that a round is given, by name."""
    fed = work.fed
    splits = {"train": fed.train, "val": fed.val, "test": fed.test}
    return {
        "downlink": work.down,
        "client state": work.states,
        "model": dict(work.task.module.named_parameters()) | dict(work.task.module.named_buffers()),
        "federation": {
            "x": fed.x,
            "y": fed.y,
            "y_train": fed.y_train,
            **{k: {"rows": s.rows, "start": s.start} for k, s in splits.items()},
        },
        "ids": work.ids,
        "key": work.key,
    }


def _sent(uplink: Uplink) -> Tree:
    """An uplink as a tree."""
    loss = {} if uplink.loss is None else {"loss": uplink.loss}
    return {
        "ids": uplink.ids,
        "n": uplink.n,
        "update": uplink.update,
        "extra": uplink.extra,
        **loss,
    }


def _pick(uplink: Uplink, chosen: list[int]) -> Uplink:
    """The uplink of some of the cohort, in that order."""
    return Uplink(
        ids=uplink.ids[chosen],
        n=uplink.n[chosen],
        update=tree.row(uplink.update, chosen),
        loss=None if uplink.loss is None else uplink.loss[chosen],
        extra=tree.row(uplink.extra, chosen),
    )


def _found(sent: Tree, kept: Tree) -> Iterator[tuple[str, str, int]]:
    """What was sent and is part of a client's state: its name, the state's name, whose state."""
    for name, a in tree.flatten(sent):
        flat = a.reshape(len(a), -1)
        # A single number or a constant (zeros, as many begin) can be equal by chance.
        telling = (flat != flat[:, :1]).any(1)
        for leaf, b in tree.flatten(kept):
            other = b.reshape(len(b), -1)
            if flat.shape[1] != other.shape[1]:
                continue
            equal = (flat.unsqueeze(1) == other.unsqueeze(0)).all(2) & telling.unsqueeze(1)
            for j in equal.any(0).nonzero().flatten().tolist():
                yield name, leaf, int(j)


def _nudged(stacked: Tensor, j: int) -> Tensor:
    """The same states, but client ``j``'s."""
    if not stacked.is_floating_point():
        return stacked
    moved = stacked.clone()
    moved[j] += 0.01
    return moved


def _trains(trace: _Trace) -> bool:
    """Whether anything was ever sent or kept that was not there before."""
    for done in trace.rounds:
        if any(bool(leaf.any()) for leaf in tree.leaves(done.uplink.update)):
            return True
        if tree.leaves(done.states) and not _equal(done.states, done.work.states):
            return True
    return False


def _clone(state: Tree) -> Tree:
    return tree.map(lambda x: x.detach().clone(), state)


def _form(state: Tree, skip: int = 1) -> dict[str, Any]:
    """Shape and type of every leaf, without the first ``skip`` dimensions."""
    return {k: (tuple(v.shape[skip:]), v.dtype) for k, v in tree.flatten(state)}


def _alike(rule: str, what: str, now: dict[str, Any], want: dict[str, Any]) -> None:
    """Refuse another structure: names first, then shapes and types."""
    for name in [*now, *want]:
        if name not in want:
            raise AssertionError(f"{rule}: {what} has {name!r}, which does not belong there.")
        if name not in now:
            raise AssertionError(f"{rule}: {what} lacks {name!r}.")
        if now[name] != want[name]:
            raise AssertionError(
                f"{rule}: {what}, {name!r}: {_shown(now[name])} where it should be "
                f"{_shown(want[name])}."
            )


def _shown(form: tuple[tuple[int, ...], torch.dtype]) -> str:
    return f"{str(form[1]).removeprefix('torch.')}{list(form[0])}"


def _same(
    rule: str, what: str, a: Tree, b: Tree, *, exactly: bool = False, tolerance: float = 0.0
) -> None:
    """Refuse a difference, with the leaf where it is and how large it is."""
    _alike(rule, what, _form(a, 0), _form(b, 0))
    theirs = dict(tree.flatten(b))
    for name, x in tree.flatten(a):
        y = theirs[name]
        if torch.equal(x, y):
            continue
        gap = (x.double() - y.double()).abs().max().item()
        allowed = 0.0 if exactly else tolerance * max(1.0, y.double().abs().max().item())
        if not gap <= allowed:
            raise AssertionError(
                f"{rule}: {what}, {name!r} differs by {gap:.3g} (allowed: {allowed:.3g})."
            )


def _equal(a: Tree, b: Tree) -> bool:
    try:
        _same("", "", a, b, exactly=True)
    except AssertionError:
        return False
    return True
