"""Clients' states on the device, in the host's memory and on disk: time per round, and same bits.

python benchmarks/places.py --device cuda           on a GPU: the host's memory is pinned
python benchmarks/places.py --clients 200 --model "mlp(64)"

Needs torch and numpy alone. Ditto: every client keeps a personal model. The three trainings take
turns; after them all states and the server's model must be the same to the bit.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

import glocal
from glocal.core import tree
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.runner import runner_of
from glocal.training.client_state import placement as storage

PLACES = ("device", "host", "disk")
EXAMPLES, FEATURES, CLASSES = 20, 784, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--sampled", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--model", default="mlp(512, 256, 256, 128)")
    chosen = parser.parse_args()
    device = torch.device(chosen.device)
    n = chosen.clients * EXAMPLES
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(n, FEATURES, generator=draw)
    y = torch.randint(CLASSES, (n,), generator=draw)
    fed = glocal.federation(x, y, clients=torch.arange(n) // EXAMPLES, classes=CLASSES)
    runs = {}
    for place in PLACES:
        order = Config(
            model=chosen.model,
            rounds=10**6,
            sampled=chosen.sampled,
            device=chosen.device,
            states=place,
            engine="vectorised",
        )
        here = setups.make(order, fed, 0)
        training = runner_of("method", "ditto(epochs=1)").check(here)
        runs[place] = training, training.begin(here.task.params)
    one = 4 * tree.count(runs["device"][0].task.params)
    by_rule = storage.rule(chosen.clients * one, device)
    print(f"{chosen.clients * one / 1e9:.2f} GB of states on {device}; by rule: {by_rule}")
    times: dict[str, list[float]] = {place: [] for place in PLACES}
    for r in range(chosen.rounds):
        for place in PLACES if r % 2 else reversed(PLACES):
            training, progress = runs[place]
            settled(device)
            began = time.perf_counter()
            training.one_round(progress)
            settled(device)
            times[place].append(1000 * (time.perf_counter() - began))
    ids, states = runs["device"][1].clients.saved()
    for place in PLACES:
        others, found = runs[place][1].clients.saved()
        assert torch.equal(ids, others), place
        for a, b in (
            (states, found),
            (runs["device"][1].server["params"], runs[place][1].server["params"]),
        ):
            named = dict(tree.flatten(b))
            for name, leaf in tree.flatten(a):
                assert torch.equal(leaf.cpu(), named[name].cpu()), (place, name)
        late = times[place][chosen.rounds // 2 :]
        print(f"{place:7} median of the later half {statistics.median(late):8.1f} ms a round")
    print(f"{len(ids)} clients' states and the server's model: the same to the bit")


def settled(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
