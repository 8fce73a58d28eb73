"""Mean and percentiles of some measurements."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Distribution:
    """Mean and percentiles of some measurements."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float
    highest: float

    @classmethod
    def of(cls, values: Any) -> 'Distribution | None':
        """Return the distribution of the values, None when there are none."""
        values = np.asarray(values, float)
        if not values.size:
            return None
        p50, p95, p99 = np.percentile(values, (50, 95, 99))
        return cls(
            values.size, float(values.mean()), float(p50), float(p95), float(p99),
            float(values.max()),
        )  # fmt: skip
