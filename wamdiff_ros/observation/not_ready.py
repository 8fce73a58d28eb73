"""Why there is nothing to plan from."""


class NotReady(Exception):
    """No observation can be made now; `reason` is one sentence for diagnostics."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason
