"""Two of ten clients are malicious: what becomes of the others, by aggregator?"""

import glocal

fed = glocal.load("digits", clients=10, partition="iid", split=(0.3, 0.1, 0.6))
attacks = ("sign-flip(scale=5, share=0.2)", "label-flip(share=0.2)")
aggregators = ("mean", "median", "multi-krum(malicious=2)")
settings = {"model": "mlp(32)", "rounds": 10, "baseline": "none", "diverged": "skip"}


def accuracy(aggregator: str, attack: str | None) -> float:
    """The mean accuracy of the honest clients, in per cent."""
    summary = glocal.fit(f"fedavg+{aggregator}", fed, attack=attack, **settings).summary
    return 100 * float(summary["honest"]["mean"] if attack else summary["mean"])


names = [attack.partition("(")[0] for attack in attacks]
print(f"{'aggregator':<26} no attack  {'  '.join(f'{name:>10}' for name in names)}")
for aggregator in aggregators:
    found = [accuracy(aggregator, attack) for attack in attacks]
    cells = "  ".join(f"{value:10.1f}" for value in found)
    print(f"{aggregator:<26} {accuracy(aggregator, None):9.1f}  {cells}")
