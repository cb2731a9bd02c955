"""A weighting of one's own: clients whose loss is higher than the median count twice."""

import glocal
from glocal.core.types import Tree, Uplink
from glocal.slots.weighting import Tensor, Weighting, losses


@glocal.register("above-median")
def above_median(factor: float = 2.0) -> Weighting:
    """By examples, and those with a loss above the median of the round count more.

    Args:
        factor: how often they count.
    """

    def weigh(state: Tree, uplink: Uplink) -> tuple[Tensor, Tree]:
        loss = losses(uplink)  # of the model that they received, which they send
        p = uplink.n.cpu() * (1 + (factor - 1) * (loss > loss.median()))
        return p / p.sum(), state

    return Weighting("above-median", weigh, needs_loss=True)


fed = glocal.load("digits", clients=8, partition="dirichlet(0.3)", split=(0.3, 0.1, 0.6))
print(f"{'method':<30} mean %  worst 10 %  Gini")
for method in ("fedavg", "fedavg+above-median", "ditto+above-median(factor=3)"):
    s = glocal.fit(method, fed, model="mlp(32)", rounds=10, baseline="none").summary
    print(f"{method:<30} {100 * s['mean']:6.1f}  {100 * s['worst10']:10.1f}  {s['gini']:.1f}")
