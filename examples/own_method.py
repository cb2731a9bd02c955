"""A method of one's own: clients whose first layers move less than their last.

The client's half is FedAvg's with another step: the gradient of every layer but the last is scaled
by ``body``. With ``body=1`` it is FedAvg, to the bit.
"""

from typing import Unpack

import glocal
from glocal.core.types import Params, Tree
from glocal.methods.training_args import TrainingArgs, local_sgd
from glocal.slots.sharing import last


@glocal.register("slow-body")
def slow_body(body: float = 0.3, **training: Unpack[TrainingArgs]) -> glocal.Method:
    """FedAvg whose body learns at a rate of its own.

    Args:
        body: the factor on the learning rate of all layers but the last.
    """
    base = local_sgd(**training)  # FedAvg's client, with its lr, epochs and so on

    def step(task, down, carry, batch, key):  # type: ignore[no-untyped-def]
        w, head = carry["w"], last(1).pick(list(carry["w"]))
        grads, _ = task.grad(lambda w: task.loss(w, batch, key), w)
        scaled: Params = {k: g if k in head else body * g for k, g in grads.items()}
        w, opt = base.opt.update(scaled, carry["opt"], w, down["lr"])
        moved: Tree = {**carry, "w": w, "opt": opt}
        return moved

    return glocal.Method(local=base.replace(step=step))


fed = glocal.load("digits", clients=6, partition="classes(4)", split=(0.3, 0.1, 0.6))
for method in ("fedavg", "slow-body(body=1)", "slow-body(epochs=4)"):
    run = glocal.fit(method, fed, model="mlp(32)", rounds=10, baseline="none")
    print(f"{method:<20} {100 * run.summary['mean']:.1f} %")
