"""At least ``u`` of the clients are better off: a bound on the number, not a list of names.

More clients gain than can be told one by one. "At least ``u`` gain" is refuted if ``K − u + 1`` of
them gain nothing, and is shown if that can be excluded for every set of so many clients (a partial
conjunction; Benjamini and Heller, *Screening for partial conjunction hypotheses*, Biometrics 2008).
The set that is hardest to exclude is that of the largest p-values ``p_(u) ≤ … ≤ p_(K)``::

    u is shown if  P(u') ≤ 1 − level  for all u' ≤ u,    P(u) = 2 min(S(u), T(u)),   m = K − u + 1

``S`` finds few large gains (Simes, *An improved Bonferroni procedure for multiple tests of
significance*, Biometrika 1986; valid also where p-values depend on each other positively), and
``T`` finds many small ones: Stouffer's sum of normal scores, with the luck ``ρ`` of a repeat that
all clients share in its variance, and its degrees of freedom by Satterthwaite::

    S = min_i  m p_(u+i−1) / i
    T = t_f( Σ z / √V ),   V = m + m (m − 1) ρ,   f = (R − 1) (V / (m² ρ))²

``2 min`` pays for looking at both.
"""

from __future__ import annotations

import numpy as np

from glocal.evaluation.distributions import Array, normal_quantile, t_upper
from glocal.evaluation.moderated_t import moderated
from glocal.evaluation.paired_differences import PairedDifferences


def at_least(p: Array, shared: float, repeats: int, level: float = 0.90) -> int:
    """The largest number of clients that is shown to be better off.

    Args:
        p: One-sided p-values of "this client gains nothing", [clients]; NaN counts as 1.
        shared: ``ρ``, the share of a client's variance that all clients have in common.
        repeats: How many that share was estimated from.
        level: The bound's confidence.
    """
    ordered = np.sort(np.clip(np.nan_to_num(p, nan=1.0), 1e-12, 1 - 1e-12))
    scores = -normal_quantile(ordered)
    for u in range(1, len(ordered) + 1):
        rest = ordered[u - 1 :]
        m = len(rest)
        simes = np.min(rest * m / np.arange(1, m + 1))
        variance = m + m * (m - 1) * shared
        df = (repeats - 1) * (variance / max(m * m * shared, 1e-9)) ** 2
        stouffer = float(t_upper(scores[u - 1 :].sum() / np.sqrt(variance), df))
        if 2 * min(simes, stouffer) > 1 - level:
            return u - 1
    return len(ordered)


def shown_at_least(differences: PairedDifferences, level: float) -> int:
    """The same, of three repeats or more, from the p-values of the moderated t.

    ``ρ`` is the variance over repeats of the mean over clients, in units of a client's own.
    """
    found = moderated(differences.benefit, differences.noise, differences.overlap)
    repeats = len(differences.benefit)
    tested = np.isfinite(found.mean) & (found.variance > 0)
    if not tested.any():
        return 0
    shared = float(np.mean(found.together / repeats / found.variance[tested]))
    return at_least(found.p_not_above(), min(shared, 1.0), repeats, level)
