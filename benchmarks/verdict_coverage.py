"""Does the verdict's interval hold a client's true benefit? Simulated federations, known truths.

    python benchmarks/verdict_coverage.py                 all cases, a table on the screen
    python benchmarks/verdict_coverage.py --keep          and in verdict_coverage.txt beside this
    python benchmarks/verdict_coverage.py --federations 20

Every client has 20 to 500 test examples a repeat, and two models that differ on about 15 % of them.
The benefit of a repeat is the client's own (its effect: zero, 3 points for everybody, normal around
2 points, or 10 points for a fifth of the clients) plus the luck of training, of which a share is
common to all clients of a repeat, as where one trained model serves all. Nothing is trained.

Covered: clients whose interval holds their effect, by the moderated t (as on all clients' test
examples) and with partial pooling (as on own test splits). Called: better or worse off. Wrong: of
all clients, those called better off without an effect above zero, or worse off without one below.
Equally good: models that differ on the same examples in all repeats, of five folds that come back.
Mean: how often the interval of the mean benefit holds the mean effect. At least u: the bound, and
how often more are claimed than there are.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from glocal.evaluation.at_least import shown_at_least
from glocal.evaluation.mean_benefit import mean_benefit
from glocal.evaluation.paired_differences import (
    PairedDifferences,
    Pairs,
    noise_of,
    paired_differences,
)
from glocal.evaluation.verdict import verdicts

LEVEL = 0.9
EFFECTS = ("zero", "constant", "normal", "sparse")
HEAD = (
    "  K  R  effect    luck shared | t: covered called wrong | pooling: covered called wrong | "
    "mean: covered | at least  wrong"
)


def effects(draw: np.random.Generator, kind: str, clients: int) -> np.ndarray:
    """Every client's true benefit."""
    if kind == "normal":
        return draw.normal(0.02, 0.04, clients)
    if kind == "sparse":
        return np.where(draw.random(clients) < 0.2, 0.10, 0.0)
    return np.full(clients, 0.03 if kind == "constant" else 0.0)


def federation(
    draw: np.random.Generator,
    effect: np.ndarray,
    repeats: int,
    luck: float,
    shared: float,
    sizes: tuple[int, int],
) -> tuple[dict[bool, PairedDifferences], np.ndarray]:
    """What the tests of a federation say, pooled and not, and the clients' sizes."""
    clients = len(effect)
    n = np.exp(draw.uniform(np.log(sizes[0]), np.log(sizes[1]), clients)).astype(int)
    common, own = draw.standard_normal((repeats, 1)), draw.standard_normal((repeats, clients))
    benefit = effect + luck * (np.sqrt(shared) * common + np.sqrt(1 - shared) * own)
    differ = np.maximum(0.15, np.abs(benefit))
    won = draw.binomial(n, (differ + benefit) / 2)
    lose = (differ - benefit) / 2 / (1 - (differ + benefit) / 2)
    lost = draw.binomial(n - won, np.clip(lose, 0, 1))
    found, differing = (won - lost) / n, (won + lost) / n
    once = float((differing / n).sum(1).mean()) / clients**2
    effective = np.broadcast_to(n.astype(float), found.shape)
    overlap = np.full(clients, 1 / repeats)
    tested = {
        pooled: PairedDifferences(
            found,
            differing,
            effective,
            noise_of(found, differing, effective, pooled=pooled),
            overlap,
            once / repeats,
            once,
        )
        for pooled in (True, False)
    }
    return tested, n.astype(float)


def case(
    seed: int,
    clients: int,
    repeats: int,
    kind: str,
    luck: float,
    shared: float,
    federations: int,
    sizes: tuple[int, int],
) -> np.ndarray:
    """The mean over federations of everything a line shows."""
    draw = np.random.default_rng(seed)
    seen = []
    for _ in range(federations):
        effect = effects(draw, kind, clients)
        tested, n = federation(draw, effect, repeats, luck, shared, sizes)
        line: list[float] = []
        for pooled in (True, False):
            found = verdicts(tested[pooled], n, np.full(clients, 0.02), LEVEL, pooled=pooled)
            low, high = np.array([(v.low, v.high) for v in found]).T
            wrong = ((low > 0) & (effect <= 0)) | ((high < 0) & (effect >= 0))
            called = (low > 0) | (high < 0)
            line += [np.mean((low <= effect) & (effect <= high)), np.mean(called), np.mean(wrong)]
        _, low_end, high_end = mean_benefit(tested[True], LEVEL)
        at_least = shown_at_least(tested[True], LEVEL)
        line += [low_end <= effect.mean() <= high_end, at_least, at_least > (effect > 0).sum()]
        seen.append(line)
    means: np.ndarray = np.mean(seen, 0)
    return means


def returning(clients: int, repeats: int, federations: int) -> str:
    """Equally good models that differ on the same examples whenever they are trained.

    Examples of five folds come back in a sixth repeat. Each is won, lost or neither, with a chance
    of 0.8 as in all other repeats, and as many are won as lost on average.
    """
    draw = np.random.default_rng(repeats)
    called = {True: [], False: []}  # type: dict[bool, list[float]]
    for _ in range(federations):
        n = np.exp(draw.uniform(np.log(20), np.log(200), clients)).astype(int)
        first = np.concatenate([[0], np.cumsum(5 * n)])
        own = [draw.choice([-1.0, 0, 0, 0, 0, 0, 0, 0, 0, 1.0], 5 * size) for size in n]
        tests = []
        for r in range(repeats):
            if r % 5 == 0:
                order = [draw.permutation(5 * size) for size in n]
            part = [o[(r % 5) * s : (r % 5 + 1) * s] for o, s in zip(order, n, strict=True)]
            other = [draw.choice([-1.0, 0, 0, 0, 0, 0, 0, 0, 0, 1.0], size) for size in n]
            stays = [draw.random(size) < 0.8 for size in n]
            found = [
                np.where(s, x[p], o) for s, x, p, o in zip(stays, own, part, other, strict=True)
            ]
            ids = [first[k] + p for k, p in enumerate(part)]
            tests.append(Pairs(ids, [np.full(size, 1 / size) for size in n], found))
        for pooled in (True, False):
            tested = paired_differences(tests, pooled=pooled)
            given = verdicts(tested, n.astype(float), np.full(clients, 0.02), LEVEL, pooled=pooled)
            called[pooled] += [v.verdict in ("better off", "worse off") for v in given]
    shares = (np.mean(called[pooled]) for pooled in (True, False))
    return "equally good, {} repeats: called by t {:.3f}, by pooling {:.3f}".format(
        repeats, *shares
    )


def main() -> None:
    """Print every case, and the worst and the mean of all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--federations", type=int, default=200)
    parser.add_argument("--clients", type=int, nargs="+", default=[20, 100])
    parser.add_argument("--repeats", type=int, nargs="+", default=[3, 5])
    parser.add_argument("--sizes", type=int, nargs=2, default=[20, 500])
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    lines = [HEAD]
    figures: list[np.ndarray] = []
    print(HEAD, flush=True)
    for clients in given.clients:
        for repeats in given.repeats:
            for kind in EFFECTS:
                for luck, shared in (
                    (0, 0),
                    (0.02, 0),
                    (0.02, 0.9),
                    (0.04, 0),
                    (0.04, 0.5),
                    (0.04, 0.9),
                ):
                    many = given.federations
                    f = case(
                        len(figures), clients, repeats, kind, luck, shared, many, tuple(given.sizes)
                    )
                    figures.append(f)
                    lines.append(
                        f"{clients:3} {repeats:2}  {kind:9} {luck:.2f}  {shared:3.1f} |  "
                        f"{f[0]:10.3f} {f[1]:6.3f} {f[2]:5.3f} | {f[3]:17.3f} {f[4]:6.3f} "
                        f"{f[5]:5.3f} | {f[6]:13.3f} | {f[7]:8.1f}  {f[8]:5.3f}"
                    )
                    print(lines[-1], flush=True)
    table = np.array(figures)
    lines += [
        f"covered, least and mean: t {table[:, 0].min():.3f} {table[:, 0].mean():.3f}, pooling "
        f"{table[:, 3].min():.3f} {table[:, 3].mean():.3f}, mean benefit {table[:, 6].min():.3f} "
        f"{table[:, 6].mean():.3f}",
        f"called where nobody has an effect, at most: t {_null(figures, given, 1):.3f}, pooling "
        f"{_null(figures, given, 4):.3f}; at least u wrong, at most: {table[:, 8].max():.3f}",
    ]
    lines += [returning(20, repeats, given.federations) for repeats in (5, 10, 20)]
    print("\n".join(lines[-5:]))
    if given.keep:
        Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


def _null(figures: list[np.ndarray], given: argparse.Namespace, column: int) -> float:
    """The most that were called in the cases without an effect: six of every 24."""
    return max(float(f[column]) for i, f in enumerate(figures) if i % 24 < 6)


if __name__ == "__main__":
    main()
