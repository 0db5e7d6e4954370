"""Translates Hadoop's settings for S3A, ABFS and Google's connector to options of fsspec: a table row for each setting.

A setting that changes what is stored, where, or who may read it, is honoured, or refused with its name. Any other
setting that dbio cannot honour is reported. Settings without a row tune Hadoop's own client (threads, buffers, retries,
committers), and have no meaning here. The names are those of Hadoop 3.5; older names that it still takes are aliases.
Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dbio_commit.spark.session.hadoop import abfs, gcs, s3a
from dbio_commit.spark.session.hadoop.row import AssumedRole, OptionsBuilder, Row
from dbio_commit.store import Location

HadoopSettings = Mapping[str, str]
"""Hadoop settings by name, such as "fs.s3a.endpoint"."""

_PREFIX = {"file": "", "s3": "fs.s3a.", "az": "fs.azure.", "gs": "fs.gs."}
_ROWS: Mapping[str, tuple[Row, ...]] = {"file": (), "s3": s3a.ROWS, "az": abfs.ROWS, "gs": gcs.ROWS}
_CREDENTIALS = {
    "file": (),
    "s3": ("key", "secret", "token", "username", "password", "profile", "anon", "session"),
    "az": (
        *("account_key", "sas_token", "connection_string", "credential", "client_id", "client_secret", "anon"),
        *("managed_identity_client_id", "workload_identity_client_id"),
    ),
    "gs": ("token",),
}
_GOOGLES = ("fs.gs.", "google.cloud.")  # the second is older, and still works

PREFIXES = (*filter(None, _PREFIX.values()), "google.cloud.")


@dataclass(frozen=True, slots=True)
class Translation:
    options: dict[str, Any] = field(repr=False)
    """Options of fsspec, including the explicit ones and secrets."""
    role: AssumedRole | None
    ignored: tuple[str, ...]
    """A sentence for each setting that is not honoured, though it would not change what is stored."""


def translate(location: Location, settings: HadoopSettings, explicit: Mapping[str, Any] | None = None) -> Translation:
    """The settings as options for the store at the location. Explicit options override them.

    Explicit credentials of any kind replace all credentials of the session. Raises InvalidInputError for a setting that
    dbio cannot honour and that would change what is stored.
    """
    explicit = explicit or {}
    own = narrow(location, settings)
    takes_credentials = not gives_credentials(location, explicit)
    prefix = _PREFIX[location.scheme]
    builder = OptionsBuilder(prefix, own, explicit, takes_credentials=takes_credentials, container=location.container)
    if takes_credentials and location.scheme != "file":
        {"s3": s3a, "az": abfs, "gs": gcs}[location.scheme].credentials(builder)
    for row in _ROWS[location.scheme]:
        if value := builder.get(row.name):
            row.apply(builder, row.name, value)
    return Translation(_merge(builder.options, explicit), builder.role, tuple(builder.ignored))


def narrow(location: Location, settings: HadoopSettings) -> HadoopSettings:
    """The settings for the location's bucket or account, under names without the bucket or account."""
    found = {_PREFIX[location.scheme] + row.name: _lookup(location, settings, row) for row in _ROWS[location.scheme]}
    return {name: value for name, value in found.items() if value}


def gives_credentials(location: Location, options: Mapping[str, Any]) -> bool:
    return any(options.get(name) is not None for name in _CREDENTIALS[location.scheme])


def is_known(name: str) -> bool:
    """Whether the setting, maybe one of a bucket or account, has a row."""
    return bool(_KNOWN.fullmatch(name))


def is_secret(name: str) -> bool:
    """Whether Hadoop looks for the setting in its credential stores too."""
    return bool(_SECRET.fullmatch(name))


def _lookup(location: Location, settings: HadoopSettings, row: Row) -> str:
    names = (row.name, *row.aliases)
    candidates: list[str] = []
    if location.scheme == "s3":
        candidates = [f"fs.s3a.{own}{name}" for own in (f"bucket.{location.container}.", "") for name in names]
    elif location.scheme == "gs":
        candidates = [f"{prefix}{name}" for prefix in _GOOGLES for name in names]
    elif location.account:  # else it is unknown which account's settings apply
        hosts = [f".{location.account}.{service}.{location.cloud}" for service in ("dfs", "blob")]
        owners = [*(f".{location.container}{host}" for host in hosts), *hosts, ""]
        candidates = [f"fs.azure.{name}{owner}" for owner in owners for name in names]
    return next((value for name in candidates if (value := settings.get(name, "").strip())), "")


def _merge(options: Mapping[str, Any], explicit: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**options, **explicit}
    for name, value in options.items():
        if isinstance(value, Mapping) and isinstance(explicit.get(name), Mapping):
            merged[name] = _merge(value, explicit[name])
    return merged


def _pattern(*, secret: bool) -> re.Pattern[str]:
    def names(rows: tuple[Row, ...]) -> str:
        chosen = (row for row in rows if row.secret or not secret)
        return "|".join(re.escape(name) for row in chosen for name in (row.name, *row.aliases))

    return re.compile(
        rf"fs\.s3a\.(?:bucket\..+\.)?(?:{names(s3a.ROWS)})|fs\.azure\.(?:{names(abfs.ROWS)})(?:\..+)?"
        rf"|(?:{'|'.join(map(re.escape, _GOOGLES))})(?:{names(gcs.ROWS)})"
    )


_KNOWN, _SECRET = _pattern(secret=False), _pattern(secret=True)
