"""SuPerFed: two models a client, and all the mixtures between them.

Hahn, Jeong, Lee: *Connecting low-loss subspace for personalized federated learning*, KDD 2022.
Client i has the federated f (received) and a local l of another initialisation. Every mini-batch
draws λ ~ U(0, 1), one for the model (MM) or one for each layer (LM), and both descend on

    F_i((1 − λ) f + λ l) + (μ/2) ‖f − w‖² + ν cos²(f, l),

the cosine over all parameters as one vector. Before round L = ``start`` · T, λ = 0 and f trains
alone. Only f travels. The client predicts with a mixture of the received model and its l; which one
is picked on validation data from λ ∈ {0, .1, …, 1}.

λ fixed at 0 and ν = 0 is FedProx; with μ = 0 too, FedAvg.

Departures: the algorithm as printed lets ν act on both models before round L; there, as in the
released code, only f trains, without it. The released code picks λ on test data; this does not.
"""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from glocal import rng, tree
from glocal.errors import GlocalError
from glocal.local import variant
from glocal.method import Method
from glocal.methods.apfl import mix
from glocal.methods.common import TrainingArgs, local_sgd
from glocal.optim import not_negative
from glocal.sharing import layers
from glocal.task import Task
from glocal.types import Batch, Carry, ClientState, Downlink, Params, Tree

GRID = tuple(i / 10 for i in range(11))


def superfed_mm(
    *,
    mu: float = 0.01,
    nu: float = 1.0,
    start: float = 0.4,
    lam: float | None = None,
    **training: Unpack[TrainingArgs],
) -> Method:
    """Two models a client, mixed as wholes; ``lam`` fixes the mixture instead of drawing it."""
    return _superfed(False, mu, nu, start, lam, **training)


def superfed_lm(
    *,
    mu: float = 0.01,
    nu: float = 2.0,
    start: float = 0.4,
    lam: float | None = None,
    **training: Unpack[TrainingArgs],
) -> Method:
    """Two models a client, mixed layer by layer; ``lam`` fixes the mixture."""
    return _superfed(True, mu, nu, start, lam, **training)


def _superfed(
    by_layer: bool,
    mu: float,
    nu: float,
    begin: float,
    fixed: float | None,
    **training: Unpack[TrainingArgs],
) -> Method:
    not_negative(mu=mu, nu=nu)
    if not 0 <= begin <= 1 or not 0 <= (fixed or 0.0) <= 1:
        raise GlocalError("start and lam must be between 0 and 1.")
    base = local_sgd(**training)

    def draw(task: Task, key: Tensor) -> Params:
        """λ for every parameter: the same for all, or for all of a layer."""
        groups = layers(task.names)
        u = rng.uniform(rng.fold(key, 0x5F), (len(groups) if by_layer else 1,))
        if fixed is not None:
            u = torch.full_like(u, fixed)
        index = {n: i for i, names in enumerate(groups.values()) for n in names}
        return {n: u[index[n] if by_layer else 0] for n in task.names}

    def init(task: Task, params: Params, key: Tensor) -> ClientState:
        return {"l": task.init(key)}

    def start(task: Task, down: Downlink, client: ClientState) -> Carry:
        f, l = down["params"], client["l"]  # noqa: E741 the paper's letter
        return {"f": f, "f_opt": base.opt.init(f), "l": l, "l_opt": base.opt.init(l)}

    def step(task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
        begun = down["round"] >= begin * down["rounds"]
        lam = {n: torch.where(begun, v, 0.0) for n, v in draw(task, key).items()}

        def objective(both: Tree) -> Tensor:
            f, l = both["f"], both["l"]  # noqa: E741
            mixed = tree.map(lambda a, b, share: (1 - share) * a + share * b, f, l, lam)
            prox = mu / 2 * tree.sq_norm(tree.sub(f, down["params"]))
            return task.loss(mixed, batch, key) + prox + torch.where(begun, nu, 0.0) * cos2(f, l)

        grads, _ = task.grad(objective, {"f": carry["f"], "l": carry["l"]})
        f, f_opt = base.opt.update(grads["f"], carry["f_opt"], carry["f"], down["lr"])
        new = base.opt.update(grads["l"], carry["l_opt"], carry["l"], down["lr"])
        # Weight decay and momentum would move l even where its gradient is zero.
        kept = {"l": carry["l"], "l_opt": carry["l_opt"]}
        moved = {"l": new[0], "l_opt": new[1]}
        return {
            "f": f,
            "f_opt": f_opt,
            **tree.map(lambda a, b: torch.where(begun, a, b), moved, kept),
        }

    def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        return tree.sub(carry["f"], down["params"]), {"l": carry["l"]}, {}

    def candidates(task: Task, down: Downlink, client: ClientState) -> dict[str, Params]:
        grid = GRID if fixed is None else (fixed,)
        return {f"λ={share:g}": mix(client["l"], down["params"], share) for share in grid}

    return Method(
        local=variant(base, init=init, start=start, step=step, finish=finish, candidates=candidates)
    )


def cos2(f: Params, g: Params) -> Tensor:
    """``cos²(f, g)`` over all parameters as one vector."""
    return tree.dot(f, g).square() / (tree.sq_norm(f) * tree.sq_norm(g)).clamp(min=1e-12)
