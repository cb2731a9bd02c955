"""An auxiliary model that all clients share: it is sent and averaged with the model.

Its parameters are further entries of what the server sends and of a client's update, so that they
are weighed, combined and counted as those of the model are. Their names begin with a prefix that no
layer of a model has, and a client's method never sees them.
"""

from __future__ import annotations

from torch import Tensor

from glocal.core import rng, tree
from glocal.core.types import Carry, ClientState, Downlink, Params, Tree
from glocal.data.schema import Schema
from glocal.nn.task import Task
from glocal.slots.auxiliary import DRAWS, Auxiliary, assisted, fitted, needs_schema, optimiser_of
from glocal.slots.client import Local, Step


def shared_parameters(
    auxiliary: Auxiliary | None,
    task: Task,
    schema: Schema | None,
    private: set[str],
    key: Tensor | None = None,
) -> Params:
    """The auxiliary's parameters as training begins; nothing where none is shared."""
    if auxiliary is None or not auxiliary.shared:
        return {}
    _, told = fitted(auxiliary, task, needs_schema(schema, auxiliary.name), private)
    device = next(iter(task.params.values())).device
    key = rng.key(0, device) if key is None else key
    return auxiliary.init(rng.fold(key, DRAWS), told)


def with_shared_auxiliary(
    inner: Local, auxiliary: Auxiliary, task: Task, schema: Schema, private: set[str]
) -> Local:
    """``inner``, whose steps train the auxiliary that it received as well, and send its update."""
    layer, told = fitted(auxiliary, task, schema, private)
    names = shared_parameters(auxiliary, task, schema, private).keys()

    def of_model(down: Downlink) -> Downlink:
        params = {k: v for k, v in down["params"].items() if k not in names}
        return {**down, "params": params}

    def of_auxiliary(down: Downlink) -> Params:
        return {k: down["params"][k] for k in names}

    def start(task: Task, down: Downlink, client: ClientState) -> Carry:
        a = of_auxiliary(down)
        model = inner.start(task, of_model(down), client)
        return {"inner": model, "auxiliary": a, "opt": optimiser_of(auxiliary, inner).init(a)}

    def without(step: Step) -> Step:
        return lambda task, down, *rest: step(task, of_model(down), *rest)

    def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        update, state, extra = inner.finish(task, of_model(down), carry["inner"])
        return update | tree.sub(carry["auxiliary"], of_auxiliary(down)), state, extra

    phases = assisted(inner, auxiliary, layer, told)
    return inner.replace(
        start=start,
        phases=tuple(phase._replace(step=without(phase.step)) for phase in phases),
        finish=finish,
        received=lambda task, down, client: inner.received(task, of_model(down), client),
        candidates=lambda task, down, client: inner.candidates(task, of_model(down), client),
    )
