"""A node: clients' data and states, and what is answered to a server's requests.

A request names the plan's digest, the stage, the round, and for each client asked its number in the
federation and the version of its state to begin from; the server's message to clients is its tree
``down``. What is answered to

- *join*: how many examples each client has;
- *train*: updates, and what the method sends beside them, protected where the plan says so;
- *validate*: scores on validation data;
- *evaluate*: a row for each client on its own test data, beside what it has alone.

No example, no state and no text of an exception leaves a node.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from glocal.core import files, secret, tree
from glocal.core.errors import NoRoomError
from glocal.core.tensor_files import load_tensors, save_tensors
from glocal.core.threads import one_thread
from glocal.core.types import Tree, Uplink
from glocal.data.federation import Federation
from glocal.deploy import node_evaluation, wire
from glocal.deploy.plan import DeployPlan
from glocal.deploy.replies import (
    DIVERGED,
    FAILED,
    LOST,
    NO_ROOM,
    OTHER_ROUND,
    REPEATED,
    STRANGER,
    RefusalError,
    reply,
)
from glocal.deploy.versions import Versions
from glocal.evaluation.communication import Traffic
from glocal.evaluation.evaluate import validated
from glocal.evaluation.scores import Scores
from glocal.experiment.setup import Setup
from glocal.slots.privacy import Privacy
from glocal.training.client_state.store import ClientStore
from glocal.training.divergence import finite
from glocal.training.loop import REDUCE, Training
from glocal.training.run_state import Progress
from glocal.training.sampling import Fraction


@dataclass(frozen=True)
class _Asked:
    """What a request is about."""

    training: Training
    setup: Setup
    progress: Progress
    ids: Tensor
    """The clients asked, as places on this node."""
    names: tuple[str, ...]
    lost: tuple[str, ...]
    """Clients whose state is not there."""
    down: Tree


class Node:
    """The clients of one participant; their data and states stay here.

    ``answer`` never raises: what goes wrong is answered with a code, since the text of an exception
    may have data in it; ``note`` is told that text, on this side. Where clients add the plan's
    noise, it is drawn from the node's ``secret``, which is made and kept here unless it is given.
    """

    def __init__(
        self,
        plan: DeployPlan,
        fed: Federation,
        folder: Path,
        secret_key: Tensor | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        plan.schema.check(fed)
        # Clients are evaluated on their own test examples: those of others are elsewhere.
        about = {**fed.describe}
        if plan.schema.vocabulary is not None:
            about["vocabulary"] = plan.schema.vocabulary
        classes = bool(fed.target.classes)
        self.fed = replace(
            fed,
            label_shift_only=False,
            pooled=False if classes else fed.pooled,
            central=None,
            describe=about,
        )
        self.plan, self.folder, self.note = plan, folder, note
        self.secret = secret_key
        self.states = Versions(folder / "states")
        self._lock = threading.Lock()
        self._trainings: dict[tuple[int, ...], tuple[Setup, Training]] = {}
        self._last: tuple[str, bytes] = ("", b"")

    def answer(self, request: bytes) -> bytes:
        """The answer to a request of the server's."""
        digest = hashlib.sha256(request).hexdigest()
        with self._lock:
            if self._last[0] != digest:
                self._last = digest, wire.encode(self._answered(request, digest))
            return self._last[1]

    def _answered(self, request: bytes, digest: str) -> wire.Message:
        by_kind = {
            "join": self._joined,
            "train": self._trained,
            "validate": self._validated,
            "evaluate": self._evaluated,
        }
        of_request = {kind: partial(made, digest=digest) for kind, made in by_kind.items()}
        return reply(request, self.plan.digest, of_request, self.note)

    def _joined(self, message: wire.Message, digest: str) -> wire.Message:
        """How many training, validation and test examples each client has, by its number."""
        fed = self._whole(message.facts["numbers"])[0].fed
        counts = zip(*(s.counts().tolist() for s in (fed.train, fed.val, fed.test)), strict=True)
        examples = {name: list(each) for name, each in zip(fed.names, counts, strict=True)}
        return wire.Message("joined", {"clients": examples})

    def _trained(self, message: wire.Message, digest: str) -> wire.Message:
        """A round of the clients asked; their new states are kept under the round's number."""
        asked, facts = self._asked(message), message.facts
        if not 0 <= asked.progress.round < self._last_round(asked):
            raise RefusalError(OTHER_ROUND)
        failed = dict.fromkeys(asked.lost, LOST)
        used, works = [], []
        for place, name in zip(asked.ids.tolist(), asked.names, strict=True):
            if self._adds_noise(asked) and not self.states.may_answer(
                name, facts["round"] + 1, digest
            ):
                # Two answers with the same noise would show what is beneath it.
                failed[name] = REPEATED
                continue
            used.append((place, name))
        trained = self._rounds(asked, [place for place, _ in used], failed, message)
        for name, uplink, state in trained:
            if not bool(finite({"u": uplink.update, "e": uplink.extra, "s": state}, uplink.ids)[0]):
                failed[name] = DIVERGED
                continue
            spared = facts["clients"][name]["keep"]
            about = {"request": digest, "stage": facts["stage"]}
            try:
                self.states.write(name, facts["round"] + 1, tree.row(state, 0), spared, about)
            except NoRoomError as error:
                self.note(str(error))
                failed[name] = NO_ROOM
                continue
            works.append((name, uplink))
        sent: Tree = {}
        for place, (_, uplink) in enumerate(works):
            parts: Tree = {"update": uplink.update, "extra": uplink.extra}
            if uplink.loss is not None:
                parts["loss"] = {"loss": uplink.loss}
            if uplink.said is not None:
                parts["said"] = uplink.said
            sent[str(place)] = tree.row(parts, 0)
        examples = {name: int(uplink.n[0]) for name, uplink in works}
        about = {"round": facts["round"], "examples": examples, "failed": failed}
        return wire.Message("trained", about, sent)

    def _validated(self, message: wire.Message, digest: str) -> wire.Message:
        """Scores on validation data, and the loss on some training data."""
        if not self.plan.sends_results:
            raise RefusalError(FAILED)
        asked = self._asked(message)
        t = asked.training
        scores, _ = validated(
            t.task,
            t.fed,
            t.engine,
            t.models(asked.progress, asked.down),
            one_for_all=t.one_for_all(asked.progress),
            training=t.training_rows,
            errors=False,
        )
        sent = replace(scores, error=None)  # the server chooses nothing by it
        chosen = {k: v[asked.ids].cpu() for k, v in vars(sent).items() if v is not None}
        facts = {"round": message.facts["round"], "clients": list(asked.names)}
        return wire.Message("validated", facts, {"scores": chosen})

    def _evaluated(self, message: wire.Message, digest: str) -> wire.Message:
        """A row for each client; it is kept here, and sent where the plan sends results."""
        asked = self._asked(message)
        where = (asked.setup, asked.training, asked.progress, asked.down)
        every = node_evaluation.rows(self.plan, *where, self.folder)
        rows = [every[place] for place in asked.ids.tolist()]
        node_evaluation.write(self.folder, [each["row"] for each in rows])
        rows = rows if self.plan.sends_results else []
        return wire.Message("evaluated", {"round": message.facts["round"], "rows": rows})

    def _whole(self, numbers: Mapping[str, int]) -> tuple[Setup, Training]:
        """This node's clients as those of these numbers, and what trains them."""
        if set(numbers) != set(self.fed.names):
            raise RefusalError(STRANGER)
        order = tuple(int(numbers[name]) for name in self.fed.names)
        if order not in self._trainings:
            setup = self.plan.setup(self.fed.numbered(order))
            runner, config = self.plan.runner, self.plan.config
            rounds = runner.plan.rounds or config.rounds
            where = (setup.task, setup.fed, setup.engine, Fraction(), rounds, setup.seed)
            self._trainings = {order: (setup, Training(runner.plan, *where))}
        return self._trainings[order]

    def _keep_numbers(self, numbers: Mapping[str, int]) -> None:
        """Refuse other numbers than those of the first round: by them rows are split.

        A server that could choose what is test data would also choose what is trained on.
        """
        path = files.make_folder(self.states.folder) / "numbers.json"
        if not path.is_file():
            files.write(path, files.dump(dict(numbers)))
        elif json.loads(path.read_bytes()) != numbers:
            raise RefusalError(STRANGER)

    def _asked(self, message: wire.Message) -> _Asked:
        """The clients of a request, with their states at the versions that it names."""
        facts, trees = message.facts, message.trees
        setup, training = self._whole(facts["numbers"])
        self._keep_numbers(facts["numbers"])
        device = setup.fed.x.device
        down = tree.to(trees["down"], device)
        # Private layers as they began come with a request where somebody begins with them.
        begun = {k: v for k, v in setup.task.params.items() if k not in down["params"]}
        start = tree.to(trees["start"], device) if "start" in trees else begun
        server = {"params": down["params"], "start": start}
        store = ClientStore(len(setup.fed), device)
        progress = Progress(server, store, Traffic(), int(facts["stage"]), 0, int(facts["round"]))
        if training.method(progress).example_privacy is not None:
            progress.secret = self._own_secret()
        place = {name: k for k, name in enumerate(setup.fed.names)}
        names, lost = [], []
        for name, about in facts["clients"].items():
            if name not in place:
                raise RefusalError(STRANGER)
            if version := int(about["version"]):
                state = self.states.read(name, version)
                if state is None:
                    lost.append(name)
                    continue
                store.scatter(torch.tensor([place[name]], device=device), _one(state, device))
            names.append(name)
        ids = torch.tensor([place[name] for name in names], dtype=torch.int64, device=device)
        return _Asked(training, setup, progress, ids, tuple(names), tuple(lost), down)

    def _rounds(
        self, asked: _Asked, places: list[int], failed: dict[str, str], message: wire.Message
    ) -> list[tuple[str, Uplink, Tree]]:
        """What each client sends and keeps; what fails fails for one client."""
        t, trained = asked.training, []
        # On one thread, as in a simulation's cohort, so that sums are the same there and here.
        alike = asked.setup.engine.name == "sequential"
        half, left = t.method(asked.progress).server_half, [places] if places else []
        left = [[place] for place in places] if alike else left
        while left:
            some = left.pop(0)
            ids = asked.ids.new_tensor(some)
            try:
                with one_thread() if alike else asked.setup.threads():
                    key = t.round_key(asked.progress)
                    work = t.round_of(asked.progress, ids, key, asked.down)
                    uplink, states = t.engine.round(work)
                    if half.privacy is not None:
                        keys = self._noise_keys(asked, ids)
                        state = _as_planned(half.privacy, message.trees["privacy"])
                        uplink = half.protected(state, uplink, keys)
            except Exception as error:  # its text may have data in it, so it stays here
                if len(some) > 1:  # each by itself shows whose it is
                    left = [[place] for place in some] + left
                    continue
                name = t.fed.names[some[0]]
                self.note(f"client {name}: {type(error).__name__}: {error}")
                failed[name] = FAILED
                continue
            for i, place in enumerate(some):
                row = slice(i, i + 1)
                trained.append((t.fed.names[place], uplink.subset(row), tree.row(states, row)))
        return trained

    def _last_round(self, asked: _Asked) -> int:
        """How many rounds were approved: each beyond them would cost privacy that nobody counts."""
        privacy = asked.training.plan.stages[0].method.privacy
        local = privacy is not None and privacy.where == "local"  # what it costs is known here
        return asked.training.last if local else asked.training.rounds

    def _adds_noise(self, asked: _Asked) -> bool:
        method = asked.training.method(asked.progress)
        local = method.privacy is not None and method.privacy.where == "local"
        return local or method.example_privacy is not None

    def _noise_keys(self, asked: _Asked, ids: Tensor) -> Tensor:
        """The keys of the noise that clients add themselves, where they do."""
        numbers = asked.training.fed.number_of(ids)
        if not self._adds_noise(asked):
            return numbers  # nothing is drawn
        return secret.fold(self._own_secret(), REDUCE, asked.progress.round, 0, numbers)

    def _own_secret(self) -> Tensor:
        if self.secret is None:
            self.secret = kept_secret(self.states.folder)
        return self.secret


def kept_secret(folder: Path) -> Tensor:
    """The node's own key, made once: an answer that is given again has the same noise.

    It is beside the states, which know what was answered: without them it must not be used.
    """
    path = files.make_folder(folder) / "secret.safetensors"
    if not path.is_file():
        # Whole, and nobody else's to read, before it has its name.
        part = folder / f".{path.name}.{os.getpid()}"
        save_tensors(part, {"key": secret.fresh()})
        part.chmod(0o600)
        part.replace(path)
    return load_tensors(path, "the node's secret key cannot be read", "remove it")["key"]


def _as_planned(privacy: Privacy, state: Tree) -> Tree:
    """The state of privacy that a server sent, with the approved clip unless it adapts."""
    own = {} if privacy.quantile is not None else {"clip": torch.tensor(float(privacy.clip))}
    return {**state, **own}


def _one(state: Tree, device: torch.device) -> Tree:
    """One client's state, stacked."""
    return tree.map(lambda leaf: leaf.unsqueeze(0).to(device), state)


def scores_of(trees: Tree) -> Scores:
    """The scores that *validate* was answered with."""
    return Scores(**trees["scores"])
