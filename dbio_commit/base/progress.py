"""How long operations report their progress."""

from collections.abc import Callable

Progress = Callable[[str, int, int | None], None]
"""Is called with the phase, such as "listing" or "deleting", how much is done, and of how much (None if that is not
known)."""


def silent(phase: str, done: int, total: int | None) -> None:
    """No report of progress."""
