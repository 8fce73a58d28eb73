"""A road on flat ground: a centre line of given curvature, and the coordinates along it.

`s` is the length along the centre line [m], `d` the distance to its left [m].
"""

import numpy as np

STEP_M = 0.25


class Road:
    """The centre line that starts in the origin along +x and has the curvature of a profile."""

    def __init__(self, curvature_profile: list[tuple[float, float]]) -> None:
        """Take [(s_m, curvature_1pm), …]; the curvature is linear between the entries."""
        s_m, curvature_1pm = np.array(curvature_profile, float).T
        self.s_m = np.arange(s_m[0], s_m[-1] + STEP_M / 2, STEP_M)
        self.curvature_1pm = np.interp(self.s_m, s_m, curvature_1pm)
        self.heading_rad = _integral(self.curvature_1pm)
        self.x_m = _integral(np.cos(self.heading_rad))
        self.y_m = _integral(np.sin(self.heading_rad))
        origin = np.searchsorted(self.s_m, 0.0)
        turn = self.heading_rad[origin]
        x, y = self.x_m - self.x_m[origin], self.y_m - self.y_m[origin]
        self.x_m = np.cos(turn) * x + np.sin(turn) * y
        self.y_m = -np.sin(turn) * x + np.cos(turn) * y
        self.heading_rad = self.heading_rad - turn

    def pose(self, s_m: float, d_m: float) -> tuple[float, float, float]:
        """Return (x, y, heading) of the point `d_m` left of the centre line at `s_m`."""
        heading = float(np.interp(s_m, self.s_m, self.heading_rad))
        x = np.interp(s_m, self.s_m, self.x_m) - d_m * np.sin(heading)
        y = np.interp(s_m, self.s_m, self.y_m) + d_m * np.cos(heading)
        return float(x), float(y), heading

    def curvature_at(self, s_m: float) -> float:
        """Return the curvature of the centre line [1/m], positive to the left."""
        return float(np.interp(s_m, self.s_m, self.curvature_1pm))

    def coordinates(
        self, x_m: np.ndarray, y_m: np.ndarray, s_guess_m: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (s, d) of points near the road, by Newton's iteration from a guess of `s`."""
        s = s_guess_m
        for _ in range(5):
            cos, sin, dx, dy, curvature = self._relative(x_m, y_m, s)
            along = dx * cos + dy * sin
            across = -dx * sin + dy * cos
            # Moving along by ds turns the normal: d(along)/ds = -(1 - curvature * across).
            s = s + along / np.maximum(1.0 - curvature * across, 0.3)
        cos, sin, dx, dy, _ = self._relative(x_m, y_m, s)
        return s, -dx * sin + dy * cos

    def _relative(self, x_m, y_m, s):
        index = np.clip((s - self.s_m[0]) / STEP_M, 0, len(self.s_m) - 1.001)
        low = index.astype(np.int32)
        part = index - low

        def at(table):
            return table[low] + (table[low + 1] - table[low]) * part

        heading = at(self.heading_rad)
        return (
            np.cos(heading), np.sin(heading), x_m - at(self.x_m), y_m - at(self.y_m),
            self.curvature_1pm[low],
        )  # fmt: skip


def _integral(values: np.ndarray) -> np.ndarray:
    steps = (values[1:] + values[:-1]) / 2 * STEP_M
    return np.concatenate([[0.0], np.cumsum(steps)])
