"""An aggregator of one's own: the mean of the signs, with the median of the lengths.

Each coordinate is a vote, so that no client can do more than vote, however large its update is.
"""

import glocal
from glocal.core import tree
from glocal.core.types import Params
from glocal.slots.aggregation import Combine, Tensor


@glocal.register("votes")
def votes(scale: float = 1.0) -> Combine:
    """A vote on the sign of every coordinate, as long as the median of the updates.

    Args:
        scale: a factor on the length.
    """

    def combine(updates: Params, p: Tensor) -> Params:
        length = tree.row_sq_norms(updates, p).sqrt().median()
        voted: Params = tree.map(lambda x: x.sign().mean(0), updates)
        return tree.map(lambda x: scale * length * x / tree.norm(voted), voted)

    return Combine("votes", combine, weighted=False, robust=True)


fed = glocal.load("digits", clients=10, partition="iid", split=(0.3, 0.1, 0.6))
for attack in (None, "scale(factor=-20, share=0.2)"):
    for method in ("fedavg", "fedavg+median", "fedavg+votes"):
        settings = {"model": "mlp(32)", "rounds": 10, "baseline": "none", "diverged": "skip"}
        s = glocal.fit(method, fed, attack=attack, **settings).summary
        honest = s["honest"]["mean"] if attack else s["mean"]
        print(f"{attack or 'no attack':<28} {method:<14} {100 * honest:5.1f} %")
