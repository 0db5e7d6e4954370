"""Reads the configuration vacuum.toml, and checks it as a whole, so that all mistakes are reported at once.

Opens no connection: `discovery` finds the tables of a pattern. Holds no credentials: values of the form {env = "NAME"}
are looked up in the environment when they are used.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path
from typing import Annotated, Any, Self
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger  # type: ignore[import-untyped]
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from dbio_commit.base.errors import DbioError, InvalidInputError
from dbio_commit.base.redaction import is_secret_name, secrets_in, secrets_of_clients
from dbio_commit.maintenance.compact.options import TARGET_BYTES, CompactOptions
from dbio_commit.maintenance.figures import parse_size
from dbio_commit.maintenance.vacuum.report import HISTORY_DAYS, LEAST_RETENTION_HOURS, VacuumOptions
from dbio_commit.store import Location, open_store, parse_location
from vacuum.compaction import MIN_FILES
from vacuum.cron import cron_trigger, fire_times


def read_config(path: str | os.PathLike[str]) -> "Config":
    """Reads and checks the file. Raises InvalidInputError with a line for each mistake."""
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(f"cannot read {os.fspath(path)}: {error.strerror}") from error
    except RecursionError:
        raise InvalidInputError(f"{os.fspath(path)}: is nested too deeply") from None
    except ValueError as error:  # neither TOML nor UTF-8
        raise InvalidInputError(f"{os.fspath(path)}: {error}") from error
    try:
        return Config.model_validate(document)
    except RecursionError:
        raise InvalidInputError(f"{os.fspath(path)}: is nested too deeply") from None
    except ValidationError as error:
        wrong = (f"{os.fspath(path)}: {_explain(detail)}" for detail in error.errors(include_url=False))
        raise InvalidInputError(*wrong) from None  # without pydantic's own message, which shows values


def secrets(config: "Config") -> set[str]:
    """The texts that no log may show: the variables that the file names, and all that have a name of a secret."""
    names = {name for entry in config.entries for name in _variables(entry.storage_options)}
    names |= {name for name in os.environ if is_secret_name(name)}
    return secrets_in([os.environ[name] for name in names]) | secrets_of_clients()


# --- checks of values ---------------------------------------------------------------------------------------------


def _check_cron(cron: str) -> str:
    if next(fire_times(cron, "UTC", datetime.now(UTC)), None) is None:
        raise ValueError(f"{cron!r} has no time at all, such as a 30th of February")
    return cron


def _check_timezone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ValueError(f"{name!r} is no time zone; give one such as UTC or Europe/Berlin") from None
    return name


def _check_path(path: str) -> str:
    try:
        location = parse_location(path)
    except DbioError as error:
        raise ValueError(str(error)) from None
    if "*" in location.container:
        raise ValueError("a pattern needs the name of the bucket or container; * stands for directories only")
    if "**" in path:
        raise ValueError("** is not supported; write one * for each level of directories")
    return path


def _check_file(path: str) -> str:
    if "\0" in path:
        raise ValueError("a path has no character 0")
    return path


def _check_options(options: dict[str, Any]) -> dict[str, Any]:
    if found := [*_problems(options)]:
        raise ValueError("; ".join(found))
    return options


# --- the file -----------------------------------------------------------------------------------------------------

_Cron = Annotated[str, AfterValidator(_check_cron)]
_Retention = Annotated[float, Field(ge=LEAST_RETENTION_HOURS, allow_inf_nan=False)]
_Checkpoint = Annotated[int, Field(ge=0)]
_History = Annotated[float, Field(ge=HISTORY_DAYS, allow_inf_nan=False)]
_Memory = Annotated[int, Field(ge=128)]
_Deadline = Annotated[int, Field(ge=1)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class HttpConfig(_Part):
    """The address of /metrics, /health and /report."""

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 9471
    """With 0 the system chooses a free port, which the log shows."""


def _parse_size(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return parse_size(value)
    except InvalidInputError as error:
        raise ValueError(str(error)) from None


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_Columns = Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_one_or_more)]


class CompactConfig(_Part):
    """The value of `compact`: a table of options, or true or false for `enabled`."""

    enabled: bool = True
    target_size: Annotated[int, BeforeValidator(_parse_size), Field(ge=1)] = TARGET_BYTES
    where: Annotated[str, Field(min_length=1)] | None = None
    sort_by: _Columns = Field(default_factory=list)
    z_order: _Columns = Field(default_factory=list)
    min_files: Annotated[int, Field(ge=1)] = MIN_FILES
    rewrite_types: bool = False
    most: Annotated[int, BeforeValidator(_parse_size), Field(ge=1)] | None = None
    spill: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            self.options()
        except InvalidInputError as error:
            raise ValueError(str(error)) from None
        return self

    def options(self) -> CompactOptions | None:
        """None if compaction is not enabled. Raises InvalidInputError."""
        options = CompactOptions(
            target_size=self.target_size,
            where=self.where,
            sort_by=tuple(self.sort_by),
            z_order=tuple(self.z_order),
            min_files=self.min_files,
            rewrite_types=self.rewrite_types,
            most=self.most,
            spill=self.spill,
        )
        return options if self.enabled else None


def _yes_or_no(value: Any) -> Any:
    return {"enabled": value} if isinstance(value, bool) else value


_Compact = Annotated[CompactConfig, BeforeValidator(_yes_or_no)]


class TableConfig(_Part):
    """An entry of [[tables]]. None means the value of the top level."""

    path: Annotated[str, AfterValidator(_check_path)]
    cron: _Cron | None = None
    retention_hours: _Retention | None = None
    dry_run: bool | None = None
    untracked: bool = False
    checkpoint_after: _Checkpoint | None = None
    history_days: _History | None = None
    memory_mb: _Memory | None = None
    deadline_s: _Deadline | None = None
    compact: _Compact | None = None
    streams: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    """Checkpoints of streams that read the table, in a store with the same credentials."""
    storage_options: Annotated[dict[str, Any], AfterValidator(_check_options)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_store(self) -> Self:
        try:
            for path in (self.path, *self.streams):
                open_store(replace(parse_location(path), prefix=""), _resolved(self.storage_options))
        except DbioError as error:
            raise ValueError(str(error)) from None
        if self.streams and "*" in self.path:
            raise ValueError(
                "streams belong to one table, and path is a pattern; give the table a [[tables]] of its own"
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """The configuration of a table, or of all tables that match a pattern."""

    path: str
    """As written in the file."""
    location: Location
    cron: str
    timezone: str
    jitter_s: int
    dry_run: bool
    options: VacuumOptions
    memory_mb: int
    """The most memory for the process of a vacuum, in MiB."""
    deadline_s: int
    """The most time for the process of a vacuum."""
    compact: CompactOptions | None
    """How to compact before each vacuum; None if not."""
    streams: Sequence[str]
    """Checkpoints of streams that read the table."""
    storage_options: Mapping[str, Any]
    """As written in the file, without credentials."""

    @property
    def name(self) -> str:
        """The table's URL, or the pattern written as a URL."""
        return self.location.url

    @property
    def is_pattern(self) -> bool:
        return "*" in self.location.prefix

    def trigger(self) -> CronTrigger:
        return cron_trigger(self.cron, self.timezone, self.jitter_s)

    def fire_times(self, after: datetime) -> Iterator[datetime]:
        return fire_times(self.cron, self.timezone, after)

    def resolved_options(self) -> dict[str, Any]:
        """The storage options with the values of the environment: with secrets, so do not keep them."""
        return _resolved(self.storage_options)


class Config(_Part):
    """The whole file. The top level has the defaults for all [[tables]]."""

    cron: _Cron = "0 3 * * *"
    timezone: Annotated[str, AfterValidator(_check_timezone)] = "UTC"
    jitter_s: Annotated[int, Field(ge=0)] = 0
    concurrency: Annotated[int, Field(ge=1)] = 4
    retention_hours: _Retention = 48.0
    dry_run: bool = False
    checkpoint_after: _Checkpoint = 20
    history_days: _History = HISTORY_DAYS
    memory_mb: _Memory = 2048
    deadline_s: _Deadline = 7200
    compact: _Compact = CompactConfig(enabled=False)
    state_file: Annotated[str, Field(min_length=1), AfterValidator(_check_file)] | None = None
    """See `states`."""
    http: HttpConfig = HttpConfig()
    tables: Annotated[list[TableConfig], Field(min_length=1)]

    @property
    def entries(self) -> Sequence[ConfigEntry]:
        return [self._entry(table) for table in self.tables]

    def _entry(self, table: TableConfig) -> ConfigEntry:
        given = table.model_dump(exclude_none=True)
        values = {key: given.get(key, getattr(self, key)) for key in (*_SETTINGS, *_OPTIONS)}
        return ConfigEntry(
            path=table.path,
            location=parse_location(table.path),
            timezone=self.timezone,
            jitter_s=self.jitter_s,
            options=VacuumOptions(untracked=table.untracked, **{key: values[key] for key in _OPTIONS}),
            compact=(table.compact or self.compact).options(),
            streams=tuple(table.streams),
            storage_options=table.storage_options,
            **{key: values[key] for key in _SETTINGS},
        )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        problems = []
        names = [entry.name for entry in self.entries]
        problems += [f"{name} is configured more than once" for name in dict.fromkeys(names) if names.count(name) > 1]
        now = datetime.now(UTC)
        for cron in dict.fromkeys(entry.cron for entry in self.entries):
            times = islice(fire_times(cron, self.timezone, now), 10)
            gap = min((later - earlier for earlier, later in pairwise(times)), default=timedelta.max)
            if gap.total_seconds() <= self.jitter_s:
                problems.append(
                    f"jitter_s = {self.jitter_s} would skip runs of {cron!r}, which are {gap} apart; give less"
                )
        if problems:
            raise ValueError("; ".join(problems))
        return self


_SETTINGS = ("cron", "dry_run", "memory_mb", "deadline_s")
_OPTIONS = ("retention_hours", "checkpoint_after", "history_days")

_KEYS: Mapping[str, type[BaseModel]] = {"tables": TableConfig, "http": HttpConfig, "compact": CompactConfig}


def _explain(detail: ErrorDetails) -> str:
    """The place and the text of a mistake. Never shows the value, which may be a secret."""
    place, message = detail["loc"], detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "extra_forbidden":
        name = str(place[-1])
        within = "compact" if "compact" in place[:-1] else str(place[0])
        model = _KEYS.get(within, Config) if len(place) > 1 else Config
        message = f"unknown key {name!r}; known are {', '.join(sorted(model.model_fields))}"
        if is_secret_name(name):
            message += f". It looks like a secret, which must not be in this file; {_ELSEWHERE}"
        place = place[:-1]
    elif detail["type"] == "missing":
        message = "is missing"
    return f"{_place(place)}: {message}" if place else message


def _place(place: tuple[int | str, ...]) -> str:
    """The place in words. Tables are counted from 1."""
    match place:
        case ("tables", int(index), *inner):
            return " ".join([f"[[tables]] number {index + 1}", *map(str, inner)])
        case ("http", *inner):
            return " ".join(["[http]", *map(str, inner)])
    return ".".join(map(str, place))


_SECRET_VALUE = re.compile(r"AccountKey=|SharedAccess|[?&]sig=|\bA[KS]IA[0-9A-Z]{16}\b|://[^/\s]*:[^/\s]*@")
_ELSEWHERE = 'leave it to the environment, or write {env = "NAME"} in its place'
"""Advice: what to do with a secret in the file."""


def _problems(options: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """Values that look like secrets, and variables of the environment that are not set."""
    for key, value in options.items():
        name = f"{within}{key}"
        if variable := _variable(value):
            if variable not in os.environ:
                yield f"{name} is to come from the environment, where {variable} is not set"
        elif isinstance(value, Mapping):
            yield from _problems(value, f"{name}.")
        elif isinstance(value, str) and (is_secret_name(key) or _SECRET_VALUE.search(value)):
            yield f"{name} looks like a secret, which must not be in this file; {_ELSEWHERE}"


def _variables(options: Mapping[str, Any]) -> Iterator[str]:
    """The names of the variables that the options come from."""
    for value in options.values():
        if name := _variable(value):
            yield name
        elif isinstance(value, Mapping):
            yield from _variables(value)


def _resolved(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the values of the variables: with secrets."""

    def resolve(value: Any) -> Any:
        if name := _variable(value):
            return os.environ[name]
        return _resolved(value) if isinstance(value, Mapping) else value

    return {key: resolve(value) for key, value in options.items()}


def _variable(value: Any) -> str | None:
    """The variable that a value names, if it is {env = "NAME"}."""
    match value:
        case {"env": str(name), **others} if not others:
            return name
    return None
