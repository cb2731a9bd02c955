"""The contract that every method keeps, rule by rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import torch

from glocal.core import secret, tree
from glocal.core.errors import GlocalError
from glocal.core.threads import one_thread
from glocal.core.types import Tree, Uplink
from glocal.data.federation import Federation
from glocal.engines import CohortRound, Engine, Sequential, Vectorised
from glocal.engines.base import Workload
from glocal.engines.lanes import SideBySide
from glocal.evaluation.evaluate import outcomes
from glocal.evaluation.trials import pool_is_valid
from glocal.methods import resolve
from glocal.nn.task import Augment, SeveralTrainingsError
from glocal.slots.method import Method, Plan, as_plan
from glocal.slots.server_half import whole_model
from glocal.testing.auxiliary import check_auxiliary
from glocal.testing.trained import Model, engine_of, ragged, task_of
from glocal.testing.trees import (
    assert_same,
    assert_structure,
    clone,
    nudged,
    same_bits,
    state_leaks,
    structure,
)
from glocal.testing.watched import (
    Trace,
    Watch,
    anything_trained,
    round_inputs,
    uplink_tree,
)
from glocal.training.checkpoint import packed, unpacked
from glocal.training.checkpoint_files import CheckpointFiles
from glocal.training.loop import COHORT, Training
from glocal.training.run_state import Progress
from glocal.training.sampling import Fixed, Sampler


@one_thread()  # clients trained at once could hide a broken rule behind a race
def check_method(
    method: str | Method | Plan,
    *,
    model: Model | Mapping[str, Model] | None = None,
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
    - *Only the shared is sent*: the update has the shared parameters and no others.
    - *Same seed, same bits*; and *another seed differs*, if the method trains at all.
    - *Frozen when finished*: a client does not depend on how long the others of its cohort are.
    - *Engines agree* on server state, client states and uplinks, round by round.
    - *Saved and loaded* after any round, a run goes on with the same bits.
    - *Order does not matter*: a cohort in another order is the same cohort.
    - *Side by side*: two trainings as one come to what each comes to by itself.
    - *Nothing private is sent*: nothing that is sent is a piece of a client's state (a single
      number, or a constant, can be so by chance and is passed over), and nothing that one client
      sends depends on the state of another.
    - *Auxiliary models stay with the clients*, and without weight change nothing, to the bit.
    - *Candidates* have the model's names and shapes, and can be evaluated.

    Args:
        method: A spec, a Method or a Plan.
        model: Of the parameters; a small MLP by default. Of several by name, clients have one each,
            in turns.
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
    task = task_of(model, fed, augment)
    sampler = Fixed(max(1, len(fed) // 2)) if sampler is None else sampler
    engine = engine_of(task, Sequential())
    training = Training(plan, task, fed, engine, sampler, rounds, 0, public_noise=True)
    training = replace(training, seed=telling_seed(training))
    kit = Contract(training, tolerance)
    kit.another_seed()
    kit.frozen()
    kit.engines_agree()
    if compiled:
        kit.agrees("compiled", engine_of(task, Vectorised(compiled=True)))
    kit.saved_and_loaded()
    kit.order()
    kit.side_by_side()
    kit.private()
    kit.candidates()
    stage = kit.traces["sequential"].end.stage
    check_auxiliary(plan.stages[stage].method, training, kit.everybody, kit.engines)


def cohorts(training: Training) -> list[list[int]]:
    """Who takes part in each round."""
    clients = len(training.fed)
    return [
        training.sampler.cohort(clients, training.key(COHORT, r)).tolist()
        for r in range(training.rounds)
    ]


def telling_seed(training: Training) -> int:
    """The first seed by which somebody joins late and somebody never; 0 if there is none."""
    for seed in range(100):
        first, *later = map(set, cohorts(replace(training, seed=seed)))
        joined = set[int]().union(*later)
        if first & joined and joined - first and len(first | joined) < len(training.fed):
            return seed
    return 0


class Contract:
    """The runs of a training on both engines, and the rules they are held against."""

    def __init__(self, training: Training, tolerance: float) -> None:
        self.training = training
        self.tolerance = tolerance
        self.engines = tuple(engine_of(training.task, e) for e in (Sequential(), Vectorised()))
        self.traces = {e.name: self.twice(e) for e in self.engines}
        self.in_last_stage(self.traces["sequential"].end)
        # Rounds of everybody after the run: in the second nobody's state is the first it had.
        self.everybody, self.before = self.settled()
        self.together = {e.name: e.round(self.everybody) for e in self.engines}

    def on(self, engine: Engine, seed: int | None = None) -> Training:
        """The same training on an engine, with its own seed or another."""
        seed = self.training.seed if seed is None else seed
        return replace(self.training, engine=engine, seed=seed)

    def run(self, training: Training, progress: Progress | None = None) -> Trace:
        """A run, watched; from where it stands, or from the start."""
        progress = progress or training.begin(training.task.params)
        trace = Trace([], [], [], progress)
        while progress.round < training.rounds:
            method, began = training.method(progress), clone(progress.server)
            watch = Watch(training.engine, method, trace.rounds)
            stage = progress.stage
            replace(training, engine=cast(Engine, watch)).one_round(progress)
            if progress.stage == stage:
                rule = f"structure stable ({training.engine.name})"
                assert_structure(
                    rule, "server state", structure(progress.server, 0), structure(began, 0)
                )
            trace.server.append(clone(progress.server))
            ids, states = progress.clients.saved()
            trace.clients.append(clone({"ids": ids, **states}))
        return trace

    def settled(self) -> tuple[CohortRound, Tree]:
        """A round of everybody in which nobody is new, and the server's state before it."""
        training, end = self.on(self.engines[0]), self.traces["sequential"].end
        method = training.method(end)
        params = whole_model(training.task, end.server)
        before = clone(params)
        training.halves[end.stage].init(training.task, params, training.key(-2, 3))
        assert_same("inputs unmodified (init)", "what a client received", params, before)
        ids = torch.arange(len(training.fed), device=training.fed.x.device)
        work = training.round_of(end, ids, training.key(-2, 0))
        watch = Watch(training.engine, method, [])
        uplink, states = watch.round(work)
        after = self.reduce(end.server, uplink)
        down = method.broadcast(after, end.round + 1, training.setting)
        return replace(work, down=down, states=states, key=training.key(-2, 1)), after

    def reduce(self, state: Tree, uplink: Uplink) -> Tree:
        """The server state after an uplink; what the server was given stays unmodified."""
        method = self.training.method(self.traces["sequential"].end)
        given = {"server state": state, "uplink": uplink_tree(uplink)}
        before = clone(given)
        key = self.training.key(-2, 2)
        noise = secret.of_seed(2)
        after, _ = method.server_half.reduce(state, uplink, self.training.setting, key, noise)
        assert_same("inputs unmodified (server)", "what it was given", given, before)
        return after

    def twice(self, engine: Engine) -> Trace:
        """A run that comes out the same when it is run again."""
        first, again = self.run(self.on(engine)), self.run(self.on(engine))
        self.compare(f"same seed, same bits ({engine.name})", again, first, 0.0)
        return first

    def in_last_stage(self, end: Progress) -> None:
        """Refuse a run that ended before the last stage of its plan."""
        stages = self.training.plan.stages
        if end.stage + 1 < len(stages):
            raise GlocalError(
                f"{self.training.rounds} rounds end in stage {stages[end.stage].name!r}, so the "
                "later ones would go unchecked: give more rounds."
            )

    def another_seed(self) -> None:
        """Another seed gives other bits, if the method trains at all."""
        first = self.traces["vectorised"]
        if not anything_trained(first) or not all(
            s.method.local.batch_size for s in self.training.plan.stages
        ):
            return  # without mini-batches there may be nothing to draw
        other = self.run(self.on(self.engines[1], seed=self.training.seed + 1))
        if same_bits(
            {"s": other.server[-1], "c": other.clients[-1]},
            {"s": first.server[-1], "c": first.clients[-1]},
        ):
            raise AssertionError("another seed differs: the same bits came of two seeds.")

    def frozen(self) -> None:
        """A client that has finished does not depend on how long the others train."""
        uplink, states = self.together["vectorised"]
        rule = "frozen when finished (vectorised)"
        for i, name in enumerate(self.training.fed.names):
            alone, kept = self.engines[1].round(self.everybody.subset(slice(i, i + 1)))
            with_others = uplink_tree(uplink.subset([i])), tree.row(states, [i])
            where = f"client {name}, by itself against with all others,"
            self.close(rule, f"{where} uplink", uplink_tree(alone), with_others[0])
            self.close(rule, f"{where} state", kept, with_others[1])

    def engines_agree(self) -> None:
        """All engines give the same uplinks and states, to the tolerance."""
        sequential, vectorised = (self.traces[e.name] for e in self.engines)
        self.compare("engines agree", vectorised, sequential, self.tolerance)
        uplink, states = self.together["sequential"]
        other, kept = self.together["vectorised"]
        self.close("engines agree", "uplink of everybody", uplink_tree(other), uplink_tree(uplink))
        self.close("engines agree", "client states of everybody", kept, states)
        # As on a GPU, and where steps are compiled: in blocks of two, one of them not full.
        self.agrees("in blocks", engine_of(self.training.task, Vectorised(in_blocks=True)))

    def agrees(self, how: str, engine: Engine) -> None:
        """One more engine gives what the sequential one gave in a round of everybody."""
        rule, (uplink, states) = f"engines agree ({how})", self.together["sequential"]
        for again in ("", ", again"):  # the second time on buffers that were used before
            work = replace(self.everybody, workload=Workload(steps=0, cohort=2))
            other, kept = engine.round(work)
            self.close(rule, f"uplink{again}", uplink_tree(other), uplink_tree(uplink))
            self.close(rule, f"client states{again}", kept, states)

    def saved_and_loaded(self) -> None:
        """A run that is saved and loaded after any round ends with the same bits."""
        training = self.on(self.engines[1])
        whole = self.traces["vectorised"]
        progress = training.begin(training.task.params)
        for r in range(training.rounds - 1):
            training.one_round(progress)
            rest = self.run(training, reloaded(training, progress))
            rule = f"saved and loaded after round {r + 1}"
            for t, state in enumerate(rest.server, r + 1):
                where, kept = f"after round {t + 1}", rest.clients[t - r - 1]
                assert_same(rule, f"server state {where}", state, whole.server[t])
                assert_same(rule, f"client states {where}", kept, whole.clients[t])

    def order(self) -> None:
        """A cohort in another order gives the same result."""
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
            self.close(rule, "uplink", uplink_tree(other.subset(turned)), uplink_tree(uplink))
            self.close(rule, "client states", tree.row(kept, turned), states)
            after = self.reduce(self.before, other), self.reduce(self.before, uplink)
            self.close(rule, "server state", *after)

    def side_by_side(self) -> None:
        """Two trainings as one come to what each comes to by itself."""
        work, fed = self.everybody, self.training.fed
        moved = tree.map(lambda x: x * 0.9 if x.is_floating_point() else x, work.down["params"])
        down, key = {**work.down, "params": moved}, self.training.key(-2, 4)
        works = [work, replace(work, down=down, key=key)]
        several = [replace(one, task=work.task.for_several()) for one in works]
        try:
            results = SideBySide.of([fed, fed]).rounds(self.engines[1], several)
        except SeveralTrainingsError:
            return  # it is trained one after another
        for number, (one, result) in enumerate(zip(works, results, strict=True), 1):
            assert result is not None
            alone, kept = self.engines[1].round(one)
            what = f"training {number}, with another against by itself,"
            self.close("side by side", f"{what} uplink", uplink_tree(result[0]), uplink_tree(alone))
            self.close("side by side", f"{what} client states", result[1], kept)

    def private(self) -> None:
        """No piece of a client's state is sent, and nobody's uplink depends on others' states."""
        work = self.everybody
        if not tree.leaves(work.states):
            return
        for engine in self.engines:
            rule = f"nothing private is sent ({engine.name})"
            uplink, states = self.together[engine.name]
            sent = {"update": uplink.update, "extra": uplink.extra}
            for when, kept in (("had", work.states), ("then had", states)):
                for sent_name, leaf, owner in state_leaks(sent, kept):
                    raise AssertionError(
                        f"{rule}: {sent_name} of the uplink is {leaf} of a state that client "
                        f"{owner} {when}."
                    )
            for j, name in enumerate(self.training.fed.names):
                others = [i for i in range(len(self.training.fed)) if i != j]
                touched = replace(work, states=tree.map(lambda x, j=j: nudged(x, j), work.states))
                other, _ = engine.round(touched)
                now, then = (uplink_tree(u.subset(others)) for u in (other, uplink))
                what = f"with another state of client {name}, the other clients' uplink"
                self.close(rule, what, now, then)

    def candidates(self) -> None:
        """Candidates have the model's names and shapes, and can be evaluated."""
        work, fed, task = self.everybody, self.training.fed, self.training.task
        before = clone(round_inputs(work))
        candidates = {
            e.name: e.candidates(task, work.local, work.down, work.states, len(fed))
            for e in self.engines
        }
        rule = "inputs unmodified (candidates)"
        assert_same(rule, "what they were made of", round_inputs(work), before)
        want = structure({k: v.unsqueeze(0) for k, v in task.largest().params.items()})
        for name, models_ in candidates["sequential"].items():
            assert_structure("candidates", f"candidate {name!r}", structure(models_), want)
        self.close(
            "engines agree", "candidates", candidates["vectorised"], candidates["sequential"]
        )
        for engine in self.engines:
            training, trace = self.on(engine), self.traces[engine.name]
            models_of = training.models(trace.end)
            seen = outcomes(task, fed, engine, models_of, pool=pool_is_valid(fed))
            accuracy = seen.metrics["accuracy"]
            if len(accuracy) != len(fed) or not all(0 <= a <= 1 for a in accuracy):
                raise AssertionError(
                    f"candidates ({engine.name}): the clients' accuracies are {accuracy}."
                )

    def compare(self, rule: str, a: Trace, b: Trace, tolerance: float) -> None:
        """Two runs, round by round: first what was sent, which is where a difference begins."""
        for x, y in zip(a.rounds, b.rounds, strict=True):
            what = f"uplink of round {int(x.work.down['round']) + 1}"
            assert_same(rule, what, uplink_tree(x.uplink), uplink_tree(y.uplink), tolerance)
        for what, left, right in (
            ("client states", a.clients, b.clients),
            ("server state", a.server, b.server),
        ):
            for t, (now, then) in enumerate(zip(left, right, strict=True)):
                assert_same(rule, f"{what} after round {t + 1}", now, then, tolerance)

    def close(self, rule: str, what: str, a: Tree, b: Tree) -> None:
        """Refuse a difference that is larger than the tolerance."""
        assert_same(rule, what, a, b, self.tolerance)


def reloaded(training: Training, progress: Progress) -> Progress:
    """The progress through a checkpoint and back, without whatever the old one shares with it."""
    with TemporaryDirectory() as folder:
        series = CheckpointFiles(Path(folder))
        series.write(progress.round, *packed(progress))
        kept = series.newest()
    assert kept is not None
    return unpacked(kept, training)
