"""FedEvg: synthetic data on the server, moved by what clients' energy models say of it.

*Federated energy-based averaging*: chapter IV of the dissertation of SuPerFed and AAggFF; code at
github.com/vaseline555/FedEvg. The server has M = L · ``spc`` examples x, noise to begin with, of
classes y. A client trains a classifier f as an energy model, E(x, y) = −f(x)[y], on

    E(real) − E(x̆) + CE(real) + λ CE(x̃) + (reg/2) (E(real)² + E(x̆)²),

where the negatives x̆ come from x̃, its copy of the server's examples, by R Langevin steps (γ, σ),
and replace them for the rest of the round: ``synthetic_batch`` of them a step, by default as many
as the batch size. It sends s = sgn f(x)[y] (``signed``; else f(x)[y]) and
∇_x E for every example as it was received: M · D + M numbers. The server steps down the energy of
the mixture: g = Σ n_i exp(s_i) ∇E_i / Σ n_i exp(s_i) and x ← x − β_t g + δ ε.

E(x, y) says nothing of how often y occurs, so as printed a client has the same say on classes that
it never saw. ``by_class`` gives the mixture its p_i(y): n_i is then the number of its examples of
the class, for which it sends the L shares of the classes in what it trained on.

The classifier is the client's own model, and is evaluated. It goes on where it stopped, ``steps``
mini-batches a round (``none``: ``epochs`` passes); ``reg``, which is ours, keeps energies small.
The paper has ``fresh=true`` (new weights every round; here the same ones) and ``reg=0``, which
takes far more steps. Departures, as in the released code: gradients are clipped to ±``clip``, and
examples kept where data is (pixels from ``low`` to ``high``; ``boxed=false``: anywhere). Algorithm
4.2 as printed has the energies' sign reversed. In tables numbers stay within ±4, categories are
shares. With ``dp`` clients send exp(s) ∇E alone, clipped as a whole
(:func:`glocal.methods.generative.server_examples`).
"""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.types import Batch, Carry, ClientState, Downlink, Params, Tree
from glocal.core.validation import not_negative, positive_integers
from glocal.methods.generative import energy, langevin, server_examples
from glocal.methods.training_args import TrainingArgs, local_sgd, with_adam
from glocal.nn.task import Task, weighted_mean
from glocal.slots.method import Method
from glocal.slots.sharing import nothing


def fedevg(
    *,
    spc: int = 10,
    beta: float = 10.0,
    beta_last: float = 0.01,
    beta_schedule: str = "cosine",
    delta: float = 0.01,
    gamma: float = 1.0,
    sigma: float = 0.01,
    chain: int = 1,
    lam: float = 0.1,
    reg: float = 0.1,
    signed: bool = True,
    by_class: bool = True,
    clip: float | None = 3.0,
    boxed: bool = True,
    low: float | None = None,
    high: float | None = None,
    synthetic_batch: int | None = None,
    steps: int | None = 10,
    fresh: bool = False,
    **training: Unpack[TrainingArgs],
) -> Method:
    """Examples that stand for everybody's data, moved by clients' energies and gradients.

    The server has examples of noise, and moves them to where clients' classifiers find them likely;
    only these examples, scores and gradients are communicated. It helps where examples are wanted
    at little traffic, also where clients have one or two classes each. It does not help a client's
    own classifier, whose energy terms compete with its task.

    Args:
        spc: synthetic examples per class.
        beta: the server's first step down the energy.
        beta_last: its last step.
        beta_schedule: how it gets from the first to the last.
        delta: noise of the server's steps.
        gamma: size of the clients' Langevin steps.
        sigma: noise of the clients' Langevin steps.
        chain: Langevin steps of a negative example.
        lam: weight of the loss on the server's examples.
        reg: weight of the squared energies.
        signed: whether clients send the sign of a score, not the score.
        by_class: whether a client has as much say on a class as it has examples of it.
        clip: what gradients of examples are clipped to; none: they are not.
        boxed: whether examples are kept where data is.
        low: lowest value of an example; that of the data by default.
        high: highest value of an example; that of the data by default.
        synthetic_batch: server's examples in a step; as many as the batch size by default.
        steps: mini-batches of a round, instead of epochs.
        fresh: whether clients start every round at the same weights.
    """
    not_negative(gamma=gamma, sigma=sigma, lam=lam, reg=reg, clip=clip or 0.0)
    numbers = {"chain": chain, "steps": steps, "synthetic_batch": synthetic_batch}
    positive_integers(**{name: n for name, n in numbers.items() if n is not None})
    steps_down = beta, beta_last, beta_schedule, delta
    moves = server_examples.Moves(spc, *steps_down, clip, boxed, low, high)
    chains = energy.Chain(chain, gamma, sigma, clip)
    base = local_sgd(**with_adam(1e-3, training, steps))
    at_once = synthetic_batch or base.batch_size or None  # a batch of 0 is all there are

    def init(task: Task, params: Params, key: Tensor) -> ClientState:
        return {"w": params, "began": params} if fresh else {"w": params}

    def start(task: Task, down: Downlink, client: ClientState) -> Carry:
        kept = {**client, "w": client["began"]} if fresh else client
        carry = {**kept, "opt": base.opt.init(kept["w"]), "x": down["examples"]["x"]}
        return {**carry, "labels": carry["x"].new_zeros(len(carry["x"]) // spc)}

    def step(task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
        words = down["examples"].get("words")
        chosen = rng.permutation(rng.fold(key, -2), len(carry["x"]))[:at_once]
        x, y = carry["x"][chosen], down["examples"]["y"][chosen]
        negative = chains.end(task, carry["w"], x, y, key, lambda at: moves.inside(at, words))

        def objective(w: Params) -> Tensor:
            # Real examples last: padding behind them changes nothing for the others.
            inputs = torch.cat([negative, x, task.inputs(batch, key)])
            made, copy, real = task.logits(w, inputs, key).tensor_split((len(x), 2 * len(x)))
            e_made, e_real = -energy.score(made, y), -energy.score(real, batch["y"])
            each = e_real + reg / 2 * e_real**2 + task.losses(real, batch["y"])
            others = -e_made + reg / 2 * e_made**2 + lam * task.losses(copy, y)
            return weighted_mean(each, batch["weight"]) + others.mean()

        grads, _ = task.grad(objective, carry["w"])
        w, opt = base.opt.update(grads, carry["opt"], carry["w"], down["lr"])
        place = chosen.view(-1, *(1,) * (x.dim() - 1)).expand_as(x)
        labels = carry["labels"].scatter_add(0, batch["y"], batch["weight"])
        moved = carry["x"].scatter(0, place, negative)
        return {**carry, "w": w, "opt": opt, "x": moved, "labels": labels}

    def finish(task: Task, down: Downlink, carry: Carry) -> tuple[Params, ClientState, Tree]:
        x, y, w = down["examples"]["x"], down["examples"]["y"], carry["w"]
        s = energy.score(task.predict(w, x), y)
        g = langevin.clipped(energy.gradient(task, w, x, y), clip)
        kept = {"w": w, "began": carry["began"]} if fresh else {"w": w}
        share = {"share": carry["labels"] / carry["labels"].sum()} if by_class else {}
        return {}, kept, {"score": s.sign() if signed else s, "gradient": g, **share}

    counted = server_examples.gradients_of_examples(chain + 2, at_once)  # chains, x̆ and x̃
    functions: dict[str, Any] = {"init": init, "start": start, "step": step, "finish": finish}
    local = server_examples.own_classifier(base, steps, **functions, other_gradients=counted)
    return Method(local=local, server=server_examples.examples("fedevg", moves), shared=nothing())
