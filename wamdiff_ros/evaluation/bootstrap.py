"""Bootstrap intervals over routes, because the records of one route are alike.

Every number here is a ratio of two sums over records: means, shares, F1, and what is paired. All
are estimated from the same resamples.
"""

from dataclasses import dataclass

import numpy as np

RESAMPLES = 4000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A value with its interval of 95 % confidence; without one where there is one route only.

    A share of exactly 0 or 1 has no width: what never happened here is in no resample either.
    """

    value: float
    low: float | None
    high: float | None


class RouteBootstrap:
    """Estimates from records whose routes are `routes` [N]; the same every time for a `seed`."""

    def __init__(self, routes: np.ndarray, seed: int = 0):
        names, self._route = np.unique(routes, return_inverse=True)
        self.routes = len(names)
        share = np.full(self.routes, 1 / self.routes)
        random = np.random.default_rng(seed)
        # How often each route is in each resample, [RESAMPLES, routes].
        self._drawn = random.multinomial(self.routes, share, RESAMPLES)

    def ratio(self, numerators: np.ndarray, denominators: np.ndarray) -> Estimate | None:
        """Return sum of numerators over sum of denominators, [N] each; None for nothing over 0.

        A record with denominator 0 does not count: its numerator has to be 0 too.
        """
        above, below = self._per_route(numerators), self._per_route(denominators)
        if not below.sum():
            return None
        value = float(above.sum() / below.sum())
        if self.routes < 2:
            return Estimate(value, None, None)
        above, below = self._drawn @ above, self._drawn @ below
        values = above[below != 0] / below[below != 0]
        tail = 50 * (1 - CONFIDENCE)
        low, high = np.percentile(values, (tail, 100 - tail))
        return Estimate(value, float(low), float(high))

    def mean(self, values: np.ndarray, counted: np.ndarray | None = None) -> Estimate | None:
        """Return the mean of `values` [N], of those that are `counted` if that is given."""
        counted = np.ones(len(values), bool) if counted is None else counted
        return self.ratio(np.where(counted, values, 0.0), counted)

    def _per_route(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self._route, np.asarray(values, float), self.routes)
