"""Families of models that a client can fit alone, and its choice among them.

A family is fitted with each of a few settings on all folds but one, for each fold; the setting that
does best on held-out examples, by the metric that counts (by rule, how many are right), is fitted
to all examples (Stone, *Cross-validatory choice and
assessment of statistical predictions*, Journal of the Royal Statistical Society B, 1974). Of a
family's settings, ties go to the lower loss on held-out examples, and then to the simpler; of
families, to the simpler one. Both are listed simplest first.

Features are centred and scaled inside each fold: a table's columns each by its own standard
deviation, images by one for all pixels, which have a unit in common.

Nothing here needs torch, so processes that fit start quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
Integers = NDArray[np.int64]
Settings = Sequence[Any]

Score = Callable[[Floats, Any], float]
"""Log-probabilities of all classes (or predicted numbers) and labels to a score: higher is better,
NaN where there is none, and then the loss chooses."""

RATE = 0.2
FIT = 5e6
"""Operations that any fit takes beside those that are counted, and a tree of its own."""

HISTOGRAMS = 2000
"""Examples from which on boosted trees are grown on histograms."""

CLIENT_OPERATIONS = 5e10
"""About what one client may spend on one family (some ten seconds): fewer settings, or none."""

FEDERATION_OPERATIONS = 2e12
"""What all clients of all repeats may spend on one family together."""

CONSTANT = "constant"
"""What predicts the same for all: fitted to a client whose examples are all of one class, too."""


@dataclass(frozen=True)
class Sizes:
    """What the work of fitting depends on."""

    n: int
    features: int
    classes: int
    folds: int
    tested: int

    @property
    def pairs(self) -> float:
        """Products of all pairs: within the folds, and with what is tested."""
        return float(self.features) * self.n * (self.n * (self.folds + 1) + self.tested)

    def fits(self, settings: int) -> int:
        """One in every fold for each setting, and the last."""
        return self.folds * settings + 1


@dataclass(frozen=True)
class Family:
    """One kind of model, its settings (simplest first), and what they cost."""

    name: str
    settings: tuple[Any, ...]
    plain: Any
    """The setting that is used by itself where there is too much data for all."""
    scores: Callable[[Floats, Any, Floats, Settings, int], list[Floats]]
    """Fit each setting to examples and labels, and score other examples: of classes [tested,
    classes] each, of numbers [tested].

    The last argument is a seed. Classes are 0, 1, … and all of them occur.
    """
    operations: Callable[[Sizes, Settings], float]
    """About how many it takes to try these settings."""

    def affordable(self, sizes: Sizes, limit: float) -> tuple[Any, ...]:
        """The settings that a client of this size can try."""
        for settings in (self.settings, (self.plain,)):
            if self.operations(sizes, settings) <= limit:
                return settings
        return ()


@dataclass(frozen=True)
class Examples:
    """One client's examples to learn from, and how they are to be used."""

    x: Floats
    """[n, features]"""
    y: Any
    """[n]: classes, or numbers in standard deviations."""
    fold: Integers
    """The fold of each; all 0: there are too few to cross-validate."""
    table: bool
    """Whether features are columns of a table, each with a unit of its own."""
    seed: int
    limit: float = CLIENT_OPERATIONS
    """Operations that may go into one family."""
    measure: Score | None = None
    """What is chosen by, where it is another than accuracy."""

    @property
    def folds(self) -> int:
        """How many there are."""
        return int(self.fold.max(initial=0)) + 1

    def by_fold(self) -> Iterator[tuple[Floats, Floats, Floats, Floats]]:
        """For each fold, which examples to learn from and which are held out; then their features.

        These are scaled as those to learn from are.
        """
        for f in range(self.folds):
            learn, held = self.fold != f, self.fold == f
            scale = scaler(self.x[learn], self.table)
            yield learn, held, scale(self.x[learn]), scale(self.x[held])


@dataclass(frozen=True)
class CrossValidated:
    """A family's setting on held-out examples."""

    family: Family
    setting: Any
    score: float
    """The metric that counts on held-out examples, by rule the share of those that were right."""
    loss: float
    """The cross-entropy of held-out examples, or half their squared error."""
    temperature: float = 1.0
    """What scores of classes are divided by."""

    @property
    def key(self) -> float:
        """What families are compared by."""
        return -self.loss if np.isnan(self.score) else self.score


def best_setting(tried: Sequence[CrossValidated]) -> CrossValidated:
    """The setting of one family that does best on held-out examples."""
    return max(tried, key=lambda each: (each.key, -each.loss))


@dataclass(frozen=True)
class Fitted:
    """The best that a client fitted."""

    name: str
    """The family's."""
    setting: Any
    score: float
    loss: float
    scores: dict[str, float]
    """The score of every family, with its best setting."""
    left_out: tuple[str, ...]
    """Families for which the client has too much data."""
    predict: Callable[[Floats], Floats]
    """Inputs to log-probabilities of all classes, or to numbers."""


def choose_family(
    families: Sequence[Family],
    given: Examples,
    classes: int,
    tested: int,
    cross_validated: Callable[[Family, Settings, Examples], CrossValidated],
    output: Callable[[Floats, CrossValidated], Floats],
) -> Fitted | tuple[str, ...]:
    """Choose a family and a setting by cross-validation, and fit them to all examples.

    ``tested`` is how many examples are going to be predicted, and ``output`` makes predictions from
    the scores of the one that is chosen. Where nothing can be
    fitted, because there is too little or too much data, only the families that were left out are
    returned.
    """
    sizes = Sizes(len(given.y), given.x.shape[1], classes, given.folds, tested)
    families = [f for f in families if given.table or f.name != "boosting"]
    settings = {f.name: f.affordable(sizes, given.limit) for f in families}
    left_out = tuple(name for name, some in settings.items() if not some)
    if sizes.folds < 2 or len(left_out) == len(families):
        return left_out
    tried = [cross_validated(f, settings[f.name], given) for f in families if settings[f.name]]
    best = max(tried, key=lambda each: each.key)  # of equals the first, which is the simplest
    scale = scaler(given.x, given.table)
    x = scale(given.x)

    def predict(new: Floats) -> Floats:
        (scores,) = best.family.scores(x, given.y, scale(new), [best.setting], given.seed)
        return output(scores, best)

    scores = {each.family.name: each.score for each in tried}
    return Fitted(best.family.name, best.setting, best.score, best.loss, scores, left_out, predict)


def by_pairs(each: float) -> Callable[[Sizes, Settings], float]:
    """The operations of a family whose fits each take ``each`` for a product of two examples."""
    return lambda s, settings: s.fits(len(settings)) * FIT + each * len(settings) * s.pairs


def boosted(x: Floats, y: Any, settings: Settings, seed: int, kind: str) -> Any:
    """As many boosted trees as the largest setting says; ``kind`` is Classifier or Regressor.

    Those of the fewest are the first of the most.
    """
    from sklearn import ensemble

    more: dict[str, Any]
    if len(x) < HISTOGRAMS:
        name, more = "GradientBoosting", {"n_estimators": max(settings)}
    else:
        name = "HistGradientBoosting"
        more = {"max_iter": max(settings), "early_stopping": False}
    return getattr(ensemble, name + kind)(learning_rate=RATE, random_state=seed, **more).fit(x, y)


def scaler(x: Floats, table: bool) -> Callable[[Floats], Floats]:
    """Centre as these examples are, and scale to one: each column, or all of them alike."""
    mean, variance = x.mean(0, dtype=np.float64), x.var(0, dtype=np.float64)
    deviation = np.sqrt(variance if table else np.full_like(variance, variance.mean()))
    constant = deviation <= 1e-9 * np.maximum(np.abs(mean), 1.0)
    deviation = np.where(constant, 1.0, deviation)
    return lambda new: (new - mean) / deviation


def one_thread() -> Any:
    """Fit on one thread: small products wait for each other longer than they compute.

    Used as a context, threads are as before when it ends.
    """
    import sklearn.ensemble
    import sklearn.linear_model
    import sklearn.neighbors
    import sklearn.svm  # noqa: F401  # libraries that are loaded later would not be limited
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    return threadpool_limits(1)
