"""SuPerFed: two models a client, and all the mixtures between them.

Hahn, Jeong, Lee: *Connecting low-loss subspace for personalized federated learning*, KDD 2022.
Client i has the federated f (received) and a local l of another initialisation. Every mini-batch
draws λ ~ U(0, 1), one for the model (MM) or one for each layer (LM), and both descend on

    F_i((1 − λ) f + λ l) + (μ/2) ‖f − w‖² + ν cos²(f, l),

the cosine over all parameters as one vector. For the first L = ⌊``start`` · T⌋ rounds λ = 0 and f
trains by itself. Only f is shared. The client predicts with a mixture of the received model and its
l; which one is picked on validation data from λ ∈ {0, .1, …, 1}. λ fixed at 0 and ν = 0 is FedProx;
with μ = 0 too, FedAvg.

Departures: in the first L rounds only f trains, without ν, as in the released code; the algorithm
as printed lets ν move both models there (``nu_always``). The released code picks λ on test data.
"""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Batch, Carry, ClientState, Downlink, Params, Tree
from glocal.core.validation import not_negative
from glocal.methods.apfl import mix
from glocal.methods.training_args import TrainingArgs, local_sgd
from glocal.nn.task import Task
from glocal.slots.method import Method
from glocal.slots.sharing import layers


def superfed_mm(
    *,
    mu: float = 0.01,
    nu: float = 1.0,
    start: float = 0.4,
    lam: float | None = None,
    nu_always: bool = False,
    **training: Unpack[TrainingArgs],
) -> Method:
    """Two models a client, mixed as wholes; ``lam`` fixes the mixture instead of drawing it.

    Each client trains two models, the global one and one of its own, at random mixtures of both, so
    that whatever lies between them is good. It helps where clients differ and there are many
    rounds. It does not help in few: in 20 rounds it was below APFL at every mixture, and its
    calibration under label noise was no better.

    Args:
        mu: strength of the pull of the federated model to the received one.
        nu: strength of the push that keeps both models orthogonal.
        start: share of the rounds after which the local model joins in.
        lam: fixes the share of the local model, which is drawn anew by default.
        nu_always: whether nu acts from the first round on.
    """
    return _superfed(False, mu, nu, start, lam, nu_always, training)


def superfed_lm(
    *,
    mu: float = 0.01,
    nu: float = 2.0,
    start: float = 0.4,
    lam: float | None = None,
    nu_always: bool = False,
    **training: Unpack[TrainingArgs],
) -> Method:
    """Two models a client, mixed layer by layer; ``lam`` fixes the mixture.

    As ``superfed-mm``, with a mixture of its own for each layer. It helps where clients differ and
    there are many rounds; with two digits a client nobody was shown to be worse off than alone. It
    does not help in few: in 20 rounds it was below APFL at every mixture.

    Settings as of :func:`superfed_mm`.
    """
    return _superfed(True, mu, nu, start, lam, nu_always, training)


def _superfed(
    by_layer: bool,
    mu: float,
    nu: float,
    begin: float,
    fixed: float | None,
    nu_always: bool,
    training: TrainingArgs,
) -> Method:
    not_negative(mu=mu, nu=nu)
    if not 0 <= begin <= 1 or not 0 <= (fixed or 0.0) <= 1:
        raise GlocalError("start and lam must be between 0 and 1.")
    base = local_sgd(**training)

    def draw(task: Task, key: Tensor) -> Params:
        """λ for every parameter: the same for all, or for all of a layer."""
        groups = list(layers(task.names).values()) if by_layer else [task.names]
        # The children of a step's key from 0 up belong to the task's augmentation and dropout.
        u = rng.uniform(rng.fold(key, -2), (len(groups),))
        u = u if fixed is None else torch.full_like(u, fixed)
        return {n: u[i] for i, names in enumerate(groups) for n in names}

    def init(task: Task, params: Params, key: Tensor) -> ClientState:
        return {"l": task.init(key)}

    def start(task: Task, down: Downlink, client: ClientState) -> Carry:
        return {"f": base.start(task, down, {}), "l": base.start(task, {"params": client["l"]}, {})}

    def step(task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
        # A share of the rounds is not exact: 0.29 · 100 would be below 29.
        begun = down["round"] >= torch.floor(begin * down["rounds"].double() + 1e-6)
        lam = {n: torch.where(begun, u, 0.0) for n, u in draw(task, key).items()}
        both = begun | nu_always

        def objective(at: Tree) -> Tensor:
            f, l = at["f"], at["l"]  # noqa: E741 the paper's letter
            mixed = {n: (1 - lam[n]) * f[n] + lam[n] * l[n] for n in f}
            prox = mu / 2 * tree.sq_norm(tree.sub(f, down["params"]))
            cos2 = tree.dot(f, l) ** 2 / (tree.sq_norm(f) * tree.sq_norm(l)).clamp(min=1e-12)
            return task.loss(mixed, batch, key) + prox + torch.where(both, nu * cos2, 0.0)

        grads, _ = task.grad(objective, {k: part["w"] for k, part in carry.items()})
        new = {}
        for k, part in carry.items():
            w, opt = base.opt.update(grads[k], part["opt"], part["w"], down["lr"])
            new[k] = {"w": w, "opt": opt}
        # Weight decay and momentum would move l even where its gradient is zero.
        return {**new, "l": tree.map(lambda a, b: torch.where(both, a, b), new["l"], carry["l"])}

    def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        return tree.sub(carry["f"]["w"], down["params"]), {"l": carry["l"]["w"]}, {}

    def candidates(task: Task, down: Downlink, client: ClientState) -> dict[str, Params]:
        grid = [i / 10 for i in range(11)] if fixed is None else [fixed]
        return {f"λ={share:g}": mix(client["l"], down["params"], share) for share in grid}

    local = base.replace(init=init, start=start, step=step, finish=finish, candidates=candidates)
    return Method(local=local)
