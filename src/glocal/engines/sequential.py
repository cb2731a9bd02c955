"""One client after another, in plain autograd.

The reference the other engines are held against, and the best one for large models and, on a CPU,
for convolutions. There every client trains on one thread, and as many clients at a time as torch
has threads: threads inside an operation gain less, and what comes out does not depend on how many
there are.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.errors import ClientError, GlocalError
from glocal.core.types import ClientState, Downlink, Params, Tree, Uplink
from glocal.engines.base import CohortRound, PerExample, examples_at_once, padded_rows
from glocal.engines.batching import plan
from glocal.engines.poisson_batches import poisson_plan
from glocal.nn.precision import arithmetic
from glocal.nn.task import Task, weighted_mean
from glocal.slots.client import Local


@dataclass(frozen=True)
class Sequential:
    """The plain loop over clients."""

    name = executed = "sequential"

    def round(self, cohort: CohortRound) -> tuple[Uplink, Tree]:
        """Each client's round in turn."""
        with arithmetic(cohort.task.precision):
            results = _all_clients(cohort)
        updates, states, extras, losses, n = zip(*results, strict=True)
        uplink = Uplink(
            ids=cohort.ids,
            n=torch.tensor(n, device=cohort.ids.device),
            update=tree.stack(updates),
            loss=torch.stack(losses) if cohort.needs_loss else None,
            extra=tree.stack(extras),
        )
        return uplink, tree.stack(states)

    def candidates(
        self, task: Task, local: Local, down: Downlink, states: Tree, clients: int
    ) -> dict[str, Params]:
        """Client by client."""
        with torch.no_grad():
            each = [local.candidates(task, down, tree.row(states, i)) for i in range(clients)]
        return tree.stack(each)

    def evaluate(
        self, metrics: PerExample, models: Params, x: Tensor, y: Tensor, rows: Tensor
    ) -> dict[str, Tensor]:
        """Client by client, in pieces."""
        with torch.no_grad(), arithmetic("single"):
            each = [
                tree.cat(
                    [
                        metrics(tree.row(models, i), x[piece], y[piece])
                        for piece in torch.split(rows[i], examples_at_once(y))
                    ]
                )
                for i in range(len(rows))
            ]
        return tree.stack(each)


def _all_clients(cohort: CohortRound) -> list[tuple[Params, ClientState, Tree, Tensor, int]]:
    """All clients' rounds, in order."""
    clients, threads = len(cohort.ids), torch.get_num_threads()
    at_once = min(clients, threads) if cohort.ids.device.type == "cpu" else 1

    def some(first: int) -> list[tuple[Params, ClientState, Tree, Tensor, int]]:
        # Calls put tensors into the module, so no two threads may share one.
        copied = replace(cohort, task=cohort.task.twin()) if at_once > 1 else cohort
        with torch.no_grad():
            return [
                one_client(copied, i, tree.row(cohort.states, i))
                for i in range(first, clients, at_once)
            ]

    if at_once == 1:
        return some(0)
    try:
        with ThreadPoolExecutor(at_once, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            parts = list(pool.map(some, range(at_once)))
    finally:
        torch.set_num_threads(threads)  # some libraries know one number for all threads
    return [parts[i % at_once][i // at_once] for i in range(clients)]


def one_client(
    cohort: CohortRound, i: int, client: ClientState
) -> tuple[Params, ClientState, Tree, Tensor, int]:
    """One client's round: update, new state, extras, loss of the received model, examples."""
    task, local, fed, down = cohort.task.plain(), cohort.local, cohort.fed, cohort.down
    ids, part = cohort.ids[i : i + 1], None if cohort.part is None else cohort.part[i : i + 1]
    if cohort.lanes is None:
        key = rng.fold(cohort.key, fed.number_of(cohort.ids[i]))
    else:
        key, down = cohort.lanes.keys[i], tree.row(down, cohort.lanes.number[i])
    stage = "start"
    try:
        loss = torch.zeros((), device=cohort.ids.device)
        if cohort.needs_loss:
            stage = "loss of the received model"
            every, _ = padded_rows(fed.train, ids)
            received = local.received(task, down, client)
            pieces = [
                task.losses(task.predict(received, fed.x[piece]), fed.y_train[piece])
                for piece in torch.split(every[0], examples_at_once(fed.y))
            ]
            loss = weighted_mean(torch.cat(pieces), fed.label_counts[every[0]])
        carry = local.start(task, down, client)
        for p, phase in enumerate(local.phases):
            phase_key = rng.fold(key, p)
            draw = poisson_plan if local.poisson else plan
            where, how = (fed.train, ids, phase_key.view(1)), (phase.epochs, local.batch_size)
            batches = draw(*where, *how, phase.steps).first(part)
            count = int(batches.steps)
            steps = torch.arange(count, device=ids.device)
            step_keys = rng.fold(rng.fold(phase_key, -2), steps)
            # The real examples of every step, without the padding of a short batch.
            real = batches.weight[0, :count] > 0
            # A batch may be empty where it is drawn, and a step of it is one all the same.
            real[:, :1] |= local.poisson
            sizes = real.sum(-1).tolist()
            rows = torch.split(batches.rows[0, :count][real], sizes)
            weight = torch.split(batches.weight[0, :count][real], sizes)
            for t, (chosen, w, step_key) in enumerate(zip(rows, weight, step_keys, strict=True)):
                stage = f"{phase.name}, step {t}"
                carry = phase.step(task, down, carry, fed.batch(chosen, w), step_key)
        stage = "finish"
        update, state, extra = local.finish(task, down, carry)
    except GlocalError:
        raise
    except Exception as error:  # whatever a method or a model raises
        raise ClientError(client_message(fed.names[int(ids[0])], stage, error)) from error
    count = int(fed.train.start[int(ids[0]) + 1] - fed.train.start[int(ids[0])])
    return update, state, extra, loss, count


def client_message(name: Any, stage: str, error: BaseException) -> str:
    """Name the client and the stage; keep the first line of what was raised."""
    reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return f"client {name} failed at {stage}: {type(error).__name__}: {reason}"
