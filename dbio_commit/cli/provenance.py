"""Prints who made a commit, for `dbio log`, `show` and `check`."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict

from dbio_commit.protocol.markers.provenance import Provenance


def by_text(by: Provenance | None) -> str | None:
    """The user and the host."""
    return "@".join(filter(None, (by.user, by.host))) or None if by else None


def labels_text(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={text}" for name, text in labels.items())


def provenance_facts(by: Provenance | None) -> Mapping[str, str]:
    """All of it, for people."""
    if by is None:
        return {}
    process = f"process {by.process}" if by.process is not None else None
    return {
        "message": by.message or "",
        "labels": labels_text(by.labels or {}),
        "by": ", ".join(filter(None, (by_text(by), process, by.software))),
        "spark": ", ".join(filter(None, (by.spark_application, by.spark_job))),
    }


def provenance_json(by: Provenance | None) -> dict[str, Any] | None:
    return asdict(by) if by else None
