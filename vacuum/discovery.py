"""Finds the tables of an entry of the configuration. Lists directories, and opens no table."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dbio_commit.base.errors import StoreError
from dbio_commit.maintenance.compact.options import TARGET_BYTES
from dbio_commit.maintenance.vacuum.idle import LastLook
from dbio_commit.protocol import names
from dbio_commit.store import Location, open_store
from vacuum.config import ConfigEntry
from vacuum.process import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """A table, and the entry with its options."""

    location: Location
    entry: ConfigEntry

    @property
    def url(self) -> str:
        return self.location.url

    def job(self, secrets: Collection[str] = (), *, last_look: LastLook | None = None) -> Job:
        entry = self.entry
        return Job(
            url=self.url,
            storage_options=entry.resolved_options(),
            options=entry.options,
            dry_run=entry.dry_run,
            memory_mb=entry.memory_mb,
            deadline_s=entry.deadline_s,
            compact=entry.compact,
            streams=entry.streams,
            target_size=entry.compact.target_size if entry.compact else TARGET_BYTES,
            last_look=last_look,
            secrets=secrets,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The tables that match an entry now."""

    tables: Sequence[FoundTable]
    """The tables that belong to the entry."""
    count: int
    """How many tables match, with those that belong to other entries. An entry with a path always counts as one."""


def find_tables(entry: ConfigEntry, entries: Sequence[ConfigEntry]) -> Matches:
    """The tables of the entry now. A table belongs to the entry with its path, else to the first pattern that matches.

    Raises StoreError if the directories of a pattern cannot be listed.
    """
    found = _find(entry) if entry.is_pattern else [entry.location]
    tables = [FoundTable(location=location, entry=entry) for location in found if _owner(location, entries) == entry]
    return Matches(tables=tables, count=len(found))


def is_there(entry: ConfigEntry) -> bool:
    """Whether there is anything at the path of the entry, which is no pattern. Raises StoreError."""
    store = open_store(entry.location, entry.resolved_options())
    if store.stat_many([names.DESCRIPTOR]) != [None]:
        return True
    found = store.list_directory()
    return bool(found.entries or found.directories)


def _owner(location: Location, entries: Sequence[ConfigEntry]) -> ConfigEntry | None:
    by_name = (entry for entry in entries if entry.location == location)
    by_pattern = (entry for entry in entries if entry.is_pattern and _matches(entry.location, location))
    return next(by_name, None) or next(by_pattern, None)


def _find(entry: ConfigEntry) -> list[Location]:
    pattern = entry.location.prefix
    fixed = pattern[: pattern.index("*")]
    root = fixed[: fixed.rfind("/") + 1]
    options = entry.resolved_options()

    def at(prefix: str) -> Location:
        return replace(entry.location, prefix=prefix)

    def is_table(path: str) -> bool:
        candidate = open_store(at(root + path), options)
        try:
            # A request for one object, as a listing of the log can be long. Only the process of a run reads the log.
            if candidate.stat_many([names.DESCRIPTOR]) != [None]:
                return True
            return any(names.parse_log_name(it.path) for it in candidate.list_log())
        except StoreError:
            return True  # its run will report the error, and other tables are not affected

    store = open_store(at(root.rstrip("/") or root), options)
    found = [""]
    for component in pattern.removeprefix(root).split("/"):
        if "*" in component:
            listings = store.ask_each(store.list_directory, found)
            children = sorted(path for listing in listings for path in listing.directories)
            found = [path for path in children if _matches_name(component, names.split(path)[1])]
        else:
            found = [names.join(path, component) for path in found]
    tables = zip(found, store.in_parallel(is_table, found), strict=True)
    return [at(root + path) for path, is_one in tables if is_one]


def _matches(pattern: Location, location: Location) -> bool:
    components, others = pattern.prefix.split("/"), location.prefix.split("/")
    return (
        replace(pattern, prefix="") == replace(location, prefix="")
        and len(components) == len(others)
        and all(map(_matches_name, components, others))
    )


def _matches_name(component: str, name: str) -> bool:
    """Whether the name matches. A * matches no hidden directory, and no directory of a partition, which lies in a table
    above it."""
    if "*" not in component:
        return component == name
    expression = "[^/]*".join(map(re.escape, component.split("*")))
    return not names.is_hidden(name) and "=" not in name and re.fullmatch(expression, name) is not None
