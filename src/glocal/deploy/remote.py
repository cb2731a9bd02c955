"""Clients that are elsewhere: asked over a transport, and believed only what passes the gate.

The server knows of each client its name, its number, how many examples it declared when it joined,
the public key of its node, and the round whose answer counted last, which is the version of the
state that the node begins from: ``progress.clients`` has that integer in a state's place. Cohorts
are drawn from all clients, whoever is online.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Downlink, Tree, Uplink
from glocal.deploy import wire
from glocal.deploy.answers import are_own, are_scores, is_result
from glocal.deploy.asking import ask_clients, clients_of
from glocal.deploy.patience import NoQuorumError, Patience
from glocal.deploy.plan import DeployPlan
from glocal.deploy.replies import FAILURES, UNREADABLE
from glocal.deploy.transport import Transport
from glocal.evaluation.client_tests import ClientTest, verdicts_of
from glocal.evaluation.measures import of_task
from glocal.evaluation.scores import Scores, recorded
from glocal.evaluation.summary import Table
from glocal.training.client_state.store import ClientStore
from glocal.training.clients import Answers, CohortSteps
from glocal.training.gate import LONGEST, STRIKES, Expected, too_long
from glocal.training.loop import Training
from glocal.training.run_state import Progress

LATE, NOT_ASKED, OLD_ROUND, TOO_LONG = (
    *("no answer in time", "another's client"),
    *("another round", "length"),
)

MOST_EXAMPLES = 10**8
"""No client has more for training, validation or test."""


@dataclass
class RemoteClients:
    """The clients of a deployment, in the order of ``keys``, which numbers them."""

    plan: DeployPlan
    transport: Transport
    keys: Mapping[str, bytes]
    """The public key of each client's node, by the client's name."""
    examples: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Training, validation and test examples of each, as it declared them when it joined."""
    patience: Patience = field(default_factory=Patience)
    removed: Callable[[], Collection[str]] = tuple
    """Clients that were taken out since: they are not asked any more."""
    left_out: list[str] = field(default_factory=list)
    """Clients whose node answered the evaluation without a row of theirs that can be one."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of all clients, in order."""
        return tuple(self.keys)

    def joined(self, names: Collection[str] | None = None) -> dict[str, list[int]]:
        """How many examples each client (of these) declares, once their nodes are there."""
        asked = [name for name in self.names if names is None or name in names]
        wants: dict[str, dict[str, Any]] = {name: {} for name in asked}
        found: dict[str, list[int]] = {}
        for key, answer in self._answers("join", wants, {}, {}, self.patience.joining).items():
            own = self._own(key)
            if isinstance(answer, str):
                raise GlocalError(f"{', '.join(own)} cannot join: {answer}.")
            declared = answer.facts.get("clients")
            if not isinstance(declared, dict) or set(declared) != set(own):
                raise GlocalError(f"the node of {', '.join(own)} joined with other clients.")
            for name in own:
                found[name] = _counts(name, declared[name])
        missing = [name for name in asked if name not in found]
        if missing:
            raise NoQuorumError(
                f"{', '.join(missing)} did not join in time: start the server again when they can."
            )
        return {name: found[name] for name in asked}

    def store(self, training: Training, progress: Progress) -> ClientStore:
        """An integer for each client."""
        return ClientStore(len(self.keys))

    def round(
        self, training: Training, progress: Progress, down: Downlink, ids: Tensor
    ) -> CohortSteps:
        """Ask the cohort's nodes, and settle whose answers count."""
        yield from ()  # nobody is here to be trained
        new = ids[~progress.clients.seen[ids]]
        method, half = training.method(progress), training.halves[progress.stage]
        strikes = _strikes(progress)
        quarantined = [name for name, count in strikes.items() if count >= STRIKES]
        removed = [name for name in self.names if name in self.removed()]
        drawn = [self.names[i] for i in ids.tolist()]
        asked = [name for name in drawn if name not in quarantined and name not in removed]
        trees: Tree = {"down": down}
        if method.privacy is not None:
            trees["privacy"] = progress.server["privacy"]
        wants, trees = self._versions(progress, asked, trees)
        facts = {"stage": progress.stage, "round": progress.round}
        expected = _expected(training, progress, down, half)
        refused: dict[str, str] = {}
        absent: dict[str, str] = {}
        good: dict[str, Tree] = {}
        answers = self._answers("train", wants, facts, trees, self.patience.deadline)
        for key, answer in answers.items():
            own = [name for name in self._own(key) if name in wants]
            if isinstance(answer, str):
                # What a node says itself is no offence; what cannot be read is.
                into = refused if answer == UNREADABLE else absent
                into |= dict.fromkeys(own, answer)
                continue
            for name, sent, why in self._checked(answer, own, progress.round, expected):
                if why is None:
                    good[name] = sent
                elif sent:
                    refused[name] = why
                else:
                    absent[name] = why
        for name in asked:
            if name not in good and name not in refused:
                absent.setdefault(name, LATE)
        for name in self._too_long(method, good) if method.privacy is None else ():
            refused[name] = TOO_LONG
            del good[name]
        if len(good) < self.patience.needed(len(asked)):
            raise NoQuorumError(
                f"{len(good)} of {len(asked)} clients answered round {progress.round + 1} in a way "
                f"that counts, and {self.patience.needed(len(asked))} are needed "
                f"({_told({**absent, **refused})}): start again from the checkpoint of round "
                f"{progress.round} when they can."
            )
        used = self._uplink(training, [name for name in asked if name in good], good)
        self._settle(progress, used.ids, lost=[n for n, why in absent.items() if why == "lost"])
        counts = {name: strikes.get(name, 0) + 1 for name in refused}
        left = {n: c for n, c in strikes.items() if n not in good and n not in refused}
        report: dict[str, Any] = {
            "refused": refused,
            "absent": absent,
            "strikes": {**left, **counts},
            "quarantined": quarantined,
            "removed": removed,
        }
        norm = tree.norm(used.update)
        said, stage = {k: v for k, v in report.items() if v}, progress.stage
        alone = training.gradients_alone[stage][new].sum()
        computed = int(training.gradients[stage][used.ids].sum() + alone)
        return Answers(used, used, norm, said, gradients=computed)

    def validate(self, training: Training, progress: Progress) -> dict[str, Any]:
        """The mean over the clients that answered; nothing where results stay with the nodes."""
        if not self.plan.sends_results:
            return {}
        answers = self._of_all("validate", training, progress, self.patience.deadline)
        found: dict[str, Tree] = {}
        for key, answer in answers.items():
            order, scores = answer.facts.get("clients"), answer.trees.get("scores")
            if answer.facts.get("round") != progress.round or not are_own(order, self._own(key)):
                continue
            if are_scores(scores, len(order), training):
                found |= {name: tree.row(scores, place) for place, name in enumerate(order)}
        names = [name for name in self.names if name in found]
        if not names:
            return {}
        stacked = tree.stack([found[name] for name in names])
        line = recorded(training.task, Scores(**stacked))
        return line if len(names) == len(self.names) else {**line, "validated": len(names)}

    def evaluate(self, training: Training, progress: Progress) -> Table:
        """A row for each client whose node sent one, by own test splits.

        Where results stay with the nodes, each keeps its clients' rows, and there are none here.
        """
        rows: dict[str, dict[str, Any]] = {}
        wrong: list[str] = []
        answers = self._of_all("evaluate", training, progress, self.patience.evaluation)
        for key, answer in answers.items():
            sent, config = answer.facts.get("rows"), self.plan.config
            each_row = [
                (_client_of(each), each) for each in (sent if isinstance(sent, list) else [])
            ]
            for name in [name for name in self._own(key) if name not in self.removed()]:
                found = [each for client, each in each_row if client == name]
                if len(found) == 1 and is_result(found[0], self.examples[name], training, config):
                    rows[name] = found[0]
                elif self.plan.sends_results:
                    wrong.append(name)
        self.left_out = [name for name in self.names if name in wrong]
        return with_verdicts([rows[name] for name in self.names if name in rows], training)

    def _own(self, key: bytes) -> list[str]:
        """The clients of a node."""
        return clients_of(self.keys, key)

    def _answers(
        self,
        kind: wire.Request,
        wants: Mapping[str, dict[str, Any]],
        facts: Mapping[str, Any],
        trees: Tree,
        seconds: float,
    ) -> dict[bytes, wire.Message | str]:
        """What the nodes of these clients answer, by their keys; or why that is no answer."""
        about = {"plan": self.plan.digest, **facts}
        return ask_clients(
            *(self.transport, self.keys, self.patience, seconds), kind, wants, about, trees
        )

    def _of_all(
        self, kind: wire.Request, training: Training, progress: Progress, seconds: float
    ) -> dict[bytes, wire.Message]:
        """What all clients' nodes answer to a question about where the run stands."""
        silent = {n for n, count in _strikes(progress).items() if count >= STRIKES}
        silent |= set(self.removed())
        names = [name for name in self.names if name not in silent]
        down = {"down": training.broadcast(progress)}
        wants, trees = self._versions(progress, names, down)
        facts = {"stage": progress.stage, "round": progress.round}
        answers = self._answers(kind, wants, facts, trees, seconds)
        return {key: each for key, each in answers.items() if not isinstance(each, str)}

    def _versions(
        self, progress: Progress, names: Sequence[str], trees: Tree
    ) -> tuple[dict[str, dict[str, Any]], Tree]:
        """What each client begins from, and what else it must keep."""
        ids = torch.tensor([self.names.index(name) for name in names], dtype=torch.int64)
        held = progress.clients.gather(ids, _no_version)["version"].tolist() if names else []
        kept: dict[int, int] = {}
        if progress.best is not None and progress.best.ids is not None and progress.best.states:
            best = progress.best.states["version"].tolist()
            kept = dict(zip(progress.best.ids.tolist(), best, strict=True))
        wants = {
            name: {"version": version, "keep": sorted({version, kept.get(i, 0)} - {0})}
            for name, version, i in zip(names, held, ids.tolist(), strict=True)
        }
        # Only those who begin anew need the private layers as they began.
        return wants, {**trees, "start": progress.server["start"]} if 0 in held else trees

    def _checked(
        self, answer: wire.Message, own: Sequence[str], number: int, expected: Expected
    ) -> Iterator[tuple[str, Tree, str | None]]:
        """Each client of a node: what it sent, and what is wrong with it (or why it sent none)."""
        examples, failed = (answer.facts.get(k) for k in ("examples", "failed"))
        if not isinstance(examples, dict) or not isinstance(failed, dict):
            yield from ((name, {"": {}}, UNREADABLE) for name in own)
            return
        if examples.keys() & failed.keys():
            yield from ((name, {"": {}}, UNREADABLE) for name in own)
            return
        if not {*examples, *failed} <= set(own):
            yield from ((name, {"": {}}, NOT_ASKED) for name in own)
            return
        for place, name in enumerate(examples):
            sent = answer.trees.get(str(place))
            if not isinstance(sent, dict):
                yield name, {"": {}}, "names"
                continue
            why = OLD_ROUND if answer.facts.get("round") != number else None
            declared = self.examples[name][0]
            yield name, sent, why or expected.objection(sent, examples[name], declared)
        for name, why in failed.items():
            known = isinstance(why, str) and why in FAILURES
            yield (name, {}, why) if known else (name, {"": {}}, UNREADABLE)

    def _too_long(self, method: Any, good: Mapping[str, Tree]) -> list[str]:
        """Whose update, or what is sent beside it, is far longer than the others'.

        Privacy clips instead, and counts that.
        """
        far, longest = torch.zeros(len(good)).bool(), self.plan.config.longest_update or LONGEST
        for part in ("update", "extra") if method.server_half.sends_update else ("extra",):
            if len(good) > 1 and tree.leaves(next(iter(good.values()))[part]):
                stacked = tree.stack([sent[part] for sent in good.values()])
                far |= too_long(stacked, torch.zeros(len(good)), longest)
        return [name for name, is_far in zip(good, far.tolist(), strict=True) if is_far]

    def _uplink(self, training: Training, names: Sequence[str], good: Mapping[str, Tree]) -> Uplink:
        """The messages that count as one, in the order of the cohort."""
        ids = torch.tensor([self.names.index(name) for name in names], dtype=torch.int64)
        if not names:
            return Uplink(ids, ids, {}, None, {})
        stacked = tree.stack([good[name] for name in names])
        return Uplink(
            ids,
            torch.tensor([self.examples[name][0] for name in names]),
            stacked["update"],
            stacked["loss"]["loss"] if "loss" in stacked else None,
            stacked["extra"],
            stacked.get("said"),
        )

    def _settle(self, progress: Progress, ids: Tensor, lost: Sequence[str]) -> None:
        """Those whose answer counts go on from it; those who lost their state begin anew."""
        gone = [self.names.index(name) for name in lost]
        changed = torch.cat([ids, torch.tensor(gone, dtype=torch.int64)])
        versions = torch.full((len(changed),), progress.round + 1)
        versions[len(ids) :] = 0
        if len(changed):
            progress.clients.scatter(changed, {"version": versions})


def with_verdicts(sent: Sequence[Mapping[str, Any]], training: Training) -> Table:
    """The rows that nodes sent, with the verdicts that follow from all of them together."""
    rows, metric = [dict(each["row"]) for each in sent], of_task(training.task).name
    for prefix in ("", "adapted_"):
        tests = [ClientTest.from_json(each["tests"].get(prefix)) for each in sent]
        known = [k for k, test in enumerate(tests) if test is not None]
        found = verdicts_of([test for test in tests if test is not None], metric) if known else []
        for k, verdict in zip(known, found, strict=True):
            new = {f"{prefix}{each.name}": getattr(verdict, each.name) for each in fields(verdict)}
            rows[k] |= {name: value for name, value in new.items() if name in rows[k]}
    return Table(rows)


def _client_of(sent: Any) -> Any:
    """Whose row this says it is."""
    row = sent.get("row") if isinstance(sent, dict) else None
    return row.get("client") if isinstance(row, dict) else None


def _no_version(client: int) -> Tree:
    return {"version": torch.tensor(0)}


def _strikes(progress: Progress) -> dict[str, int]:
    """How often in a row each client was refused."""
    return dict(progress.history[-1].get("strikes", {})) if progress.history else {}


def _told(why: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {reason}" for name, reason in why.items()) or "nobody was asked"


def _counts(name: str, declared: Any) -> list[int]:
    """Training, validation and test examples, as a client declares them."""
    fits = isinstance(declared, list) and len(declared) == 3
    if not fits or not all(type(n) is int and n >= 1 for n in declared):
        raise GlocalError(f"client {name} needs an example each for training, validation and test.")
    if max(declared) > MOST_EXAMPLES:
        raise GlocalError(
            f"client {name} declares more than {MOST_EXAMPLES} examples: ask its participant why."
        )
    return list(declared)


def _expected(training: Training, progress: Progress, down: Downlink, half: Any) -> Expected:
    """What a client's message of this round looks like."""
    method, task = training.method(progress), training.task
    with torch.no_grad():
        client = training.make(progress, half)(0)
        update, _, extra = half.finish(task, down, half.start(task, down, client))
    said = None
    if method.privacy is not None:
        below = method.privacy.quantile is not None
        said = {"below": ((), torch.float32)} if below else {}
    structures = (tree.structure(update), tree.structure(extra))
    return Expected(*structures, said, loss=method.weights.needs_loss)
