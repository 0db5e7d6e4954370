"""How long operations report their progress."""

from collections.abc import Callable

Progress = Callable[[str, int, int | None], None]
"""Called with the phase, such as "listing" or "deleting", how much is done, and the total (None if it is not known)."""


def silent(phase: str, done: int, total: int | None) -> None:
    """Reports nothing."""
