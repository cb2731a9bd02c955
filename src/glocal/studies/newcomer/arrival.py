"""Clients arrive: the federation without them and with them, and their own first training.

The old clients' part is made so that nothing of a newcomer's is in it: no rows, no share in the
statistics that a table is scaled with, no say in when a stage of training ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.errors import ClientError, GlocalError, unknown
from glocal.core.spec import parse_call
from glocal.core.types import Params
from glocal.data.federation import Federation
from glocal.data.partition import column_of
from glocal.data.split import Split, from_counts
from glocal.data.transforms import chosen
from glocal.evaluation.communication import Traffic
from glocal.evaluation.evaluate import Models
from glocal.experiment.config import Config
from glocal.experiment.ensemble import own_names
from glocal.slots.method import Plan, Stage
from glocal.slots.pretraining import by_itself
from glocal.slots.sharing import size_by_part
from glocal.training.client_state.store import ClientStore
from glocal.training.loop import Training
from glocal.training.run_state import Progress
from glocal.training.sampling import Among, Fraction

OWN = 0x0E11
"""Child of the seed's key for what newcomers draw while they train by themselves."""


def check_settings(config: Config) -> None:
    """Refuse settings that would not be what a newcomer is shown with."""
    if config.tune or config.patience is not None:
        name = "tune" if config.tune else "patience"
        raise GlocalError(
            f"{name} is not for those who join later, whose rounds are fixed: leave it out, and "
            "choose rates and rounds before."
        )
    if config.baseline == "best":
        raise GlocalError(
            "newcomers are set against the same model alone: use --baseline same, or local(…)."
        )


@dataclass(frozen=True)
class Parts:
    """One federation, three ways; in ``both`` the newcomer comes last."""

    old: Federation
    new: Federation
    both: Federation


def parts(fed: Federation, client: str | int) -> Parts:
    """The old clients, the newcomer, and all of them."""
    k = index_of(fed, client)
    others = [i for i in range(len(fed)) if i != k]
    if not others:
        raise GlocalError("there is nobody to join: the federation needs another client.")
    fed = prepared_by(fed, others)
    return Parts(
        old=some_clients(fed, others, _labels_alone(fed, k)),
        new=some_clients(fed, [k]),
        both=some_clients(fed, [*others, k]),
    )


def prepared_by(fed: Federation, clients: list[int]) -> Federation:
    """The federation with a table's columns prepared by what the rows of some clients say."""
    data = fed.unsplit
    if data is None or data.layout is None or data.layout.by_client:
        return fed
    fitted = data.layout.fit(data.x, _rows(fed.train, clients).to("cpu"), fed.names)
    x = data.layout.transform(data.x, fitted, data.rows).to(fed.x.device)
    return replace(fed, x=x, preprocessing=fitted)


def index_of(fed: Federation, client: str | int) -> int:
    """The index of a client given by name, or by index."""
    if isinstance(client, str):
        if client not in fed.names:
            raise unknown("client", client, fed.names)
        return fed.names.index(client)
    if isinstance(client, bool) or not -len(fed) <= client < len(fed):
        raise GlocalError(
            f"there is no client {client}: give a name, or an index up to {len(fed) - 1}."
        )
    return client % len(fed)


def _rows(split: Split, clients: list[int]) -> Split:
    """The rows of some clients."""
    rows = [split.of(i) for i in clients]
    counts = torch.tensor([len(r) for r in rows], device=split.start.device)
    return from_counts(torch.cat(rows), counts)


def some_clients(fed: Federation, clients: list[int], label_shift_only: bool = False) -> Federation:
    """The federation of some clients, in that order; the others' rows are in none of its splits."""
    return replace(
        fed,
        names=tuple(fed.names[i] for i in clients),
        train=_rows(fed.train, clients),
        val=_rows(fed.val, clients),
        test=_rows(fed.test, clients),
        label_shift_only=label_shift_only,
        pooled=None,
        unsplit=None,
    )


def _labels_alone(fed: Federation, newcomer: int) -> bool:
    """Whether the old clients differ in labels alone: nobody but the newcomer was turned."""
    if fed.pooled is not None or fed.label_shift_only:
        return fed.label_shift_only if fed.pooled is None else fed.pooled
    about = fed.describe
    partition = about.get("partition", "own ids")
    if partition == "own ids" or column_of(partition) is not None:
        return False
    for spec in about["transforms"]:
        try:
            name, args, kwargs = parse_call(spec)
        except GlocalError:  # somebody's own transform, which may have any name
            return False
        if name.endswith("-noise"):  # training labels only
            continue
        turned: Any = kwargs.get("clients", args[1] if len(args) > 1 else None)
        if name == "rotate" and turned is None:  # all clients alike
            continue
        if name != "rotate" or set(chosen(turned, fed.names, about["seed"])) != {newcomer}:
            return False
    return True


def joint(
    before: Training, done: Progress, both: Federation, fraction: float, new: int = 1
) -> Training:
    """The training goes on in its last stage, with the last ``new`` clients in every round.

    Where a weighting needs everybody in every round, clients count by their examples from here on.
    """
    old, newcomers = range(len(both) - new), range(len(both) - new, len(both))
    sampler = Among(tuple(old), Fraction(fraction) if fraction else None, always=tuple(newcomers))
    after = replace(before, fed=both, sampler=sampler)
    method, stages = before.method(done), before.plan.stages
    try:
        method.weights.init(after.setting)
    except GlocalError:
        method = method.replace(weighting=None)
    last = Stage(method, name=stages[done.stage].name)
    return replace(after, plan=Plan((*stages[: done.stage], last)))


def welcome(done: Progress, joint: Training) -> Progress:
    """Where the server stands when the newcomers have received what they start with."""
    method = joint.method(done)
    state = dict(done.server)
    # A weighting may keep a number for each client: with one client more it begins anew.
    fresh = method.weights.init(joint.setting)
    if tree.structure(fresh) != tree.structure(state["weighting"]):
        state["weighting"] = tree.to(fresh, joint.fed.x.device)
    ids, states = done.clients.saved()
    store = ClientStore(len(joint.fed), joint.fed.x.device).filled(ids, states)
    progress = Progress(state, store, Traffic(), done.stage, done.stage_began, done.round)
    newcomers = newcomers_of(joint)
    # A client with a state is evaluated as it is: nothing is solved for before it has trained.
    first = joint.make(progress, joint.halves[done.stage])
    store.scatter(newcomers, store.gather(newcomers, first))
    sizes = size_by_part(joint.task.params, method.shared_names(joint.task))
    shared, private = (len(newcomers) * size for size in sizes)
    progress.traffic.record({"shared": shared, "private_start": private}, {})
    return progress


def newcomers_of(joint: Training) -> Tensor:
    """The ids of those who are new in a joint training."""
    assert isinstance(joint.sampler, Among)
    return torch.tensor(joint.sampler.always, device=joint.fed.x.device)


def own_training(joint: Training, progress: Progress, epochs: int) -> Models:
    """Every newcomer trains by itself, and nothing is sent; returns what it then predicts with.

    Of a model with private layers these alone train, under the received ones; a personal model
    beside the global one trains as in a round of its method. Either is kept in ``progress``. One
    global model trains whole, and that copy is used here and then thrown away.
    """
    if epochs == 0:
        return joint.models(progress)
    task, method = joint.task, joint.method(progress)
    newcomers = newcomers_of(joint)
    key = rng.fold(rng.key(joint.seed, joint.fed.x.device), OWN)
    work = joint.round_of(progress, newcomers, key)
    local, down = work.local, work.down
    held = frozenset() if local is method.local else method.shared_names(task)
    work = replace(work, local=by_itself(local, held, epochs), needs_loss=False)
    uplink, states = joint.engine.round(work)
    if own_names(joint, progress):
        progress.clients.scatter(newcomers, states)
        received = [down] * len(newcomers)
    else:
        updates = (tree.row(uplink.update, i) for i in range(len(newcomers)))
        received = [{**down, "params": tree.add(down["params"], update)} for update in updates]
    each = [
        joint.engine.candidates(task, local, own, tree.row(states, slice(i, i + 1)), 1)
        for i, own in enumerate(received)
    ]
    for i, models in zip(newcomers.tolist(), each, strict=True):
        if not all(bool(leaf.isfinite().all()) for leaf in tree.leaves(models)):
            raise ClientError(
                f"client {joint.fed.names[i]}'s own training is not finite: it diverged; lower the "
                "learning rate, as in fedavg(lr=0.01), or look at its data."
            )
    trained: dict[str, Params] = tree.cat(each)
    return lambda ids: tree.row(trained, ids - newcomers[0])
