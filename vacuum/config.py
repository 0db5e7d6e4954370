"""vacuum.toml: what the schedule is told. Read here, checked as a whole, and every mistake named at once.

Opens no connection: which tables a pattern means is `discovery`'s. Holds no credential: values of the form
{env = "NAME"} are looked up in the environment when they are used.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from itertools import islice, pairwise
from pathlib import Path
from typing import Annotated, Any, Self
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger  # type: ignore[import-untyped]
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from dbio_commit.base.errors import DbioError, InvalidInputError
from dbio_commit.base.packages import missing
from dbio_commit.base.redaction import is_secret_name, secrets_in, secrets_of_clients
from dbio_commit.store import Location, open_store, parse_location
from dbio_commit.upkeep.compact.plan import TARGET_BYTES, check_order
from dbio_commit.upkeep.figures import parse_size
from dbio_commit.upkeep.vacuum.report import HISTORY_DAYS, LEAST_RETENTION_HOURS, VacuumOptions
from vacuum.compaction import MIN_FILES, CompactOptions

_SECRET_VALUE = re.compile(r"AccountKey=|SharedAccess|[?&]sig=|\bA[KS]IA[0-9A-Z]{16}\b|://[^/\s]*:[^/\s]*@")
_ELSEWHERE = 'leave it to the environment, or write {env = "NAME"} in its place'


def read_config(path: str | os.PathLike[str]) -> "Config":
    """Raises InvalidInputError with everything that is wrong, a line each."""
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(f"cannot read {os.fspath(path)}: {error.strerror}") from error
    except RecursionError:
        raise InvalidInputError(f"{os.fspath(path)}: is nested too deeply") from None
    except ValueError as error:  # no TOML, or no UTF-8
        raise InvalidInputError(f"{os.fspath(path)}: {error}") from error
    try:
        return Config.model_validate(document)
    except RecursionError:
        raise InvalidInputError(f"{os.fspath(path)}: is nested too deeply") from None
    except ValidationError as error:
        wrong = (f"{os.fspath(path)}: {_explain(detail)}" for detail in error.errors(include_url=False))
        raise InvalidInputError(*wrong) from None  # pydantic's own text would show the values


def secrets(config: "Config") -> set[str]:
    """The texts that no log may show: what the file takes from the environment, and what looks like a secret there."""
    names = {name for entry in config.entries for name in _names_in_environment(entry.storage_options)}
    names |= {name for name in os.environ if is_secret_name(name)}
    return secrets_in([os.environ[name] for name in names]) | secrets_of_clients()


# --- cron expressions ---------------------------------------------------------------------------------------------

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DAY_RANGE = re.compile(rf"(\*|[0-7]|{'|'.join(_DAYS)})(?:-([0-7]|{'|'.join(_DAYS)}))?(?:/([1-7]))?")


def cron_trigger(cron: str, timezone: str, jitter_s: int = 0) -> CronTrigger:
    """Raises ValueError for what is no cron expression of five fields."""
    fields = cron.split()
    if len(fields) != 5:
        raise ValueError(f"{cron!r} has {len(fields)} fields; give minute, hour, day, month and day of the week")
    minute, hour, day, month, weekday = fields
    if day != "*" and weekday != "*":
        raise ValueError(f"{cron!r} restricts both the day and the day of the week, which crons read differently")
    return CronTrigger(
        minute=minute,
        hour=hour,
        day=day,
        month=month,
        day_of_week=_weekdays(weekday),
        timezone=ZoneInfo(timezone),
        jitter=jitter_s,
    )


def fire_times(cron: str, timezone: str, after: datetime) -> Iterator[datetime]:
    """When the expression is true from then on, without jitter; in UTC."""
    trigger = cron_trigger(cron, timezone)
    time = trigger.get_next_fire_time(None, after)
    while time:
        yield time.astimezone(UTC)
        time = trigger.get_next_fire_time(time, time)


def _weekdays(field: str) -> str:
    """By name: APScheduler counts the days of the week from Monday, cron from Sunday."""
    if field == "*":
        return field
    days: set[int] = set()
    for part in field.lower().split(","):
        match = _DAY_RANGE.fullmatch(part)
        if not match:
            raise ValueError(f"{part!r} is no day of the week; give 0-7 (0 and 7 are Sunday) or sun-sat")
        first = 0 if match[1] == "*" else _weekday(match[1])
        last = 6 if match[1] == "*" or (match[3] and not match[2]) else _weekday(match[2] or match[1])
        days |= {day % 7 for day in range(first, last + (7 if last < first else 0) + 1, int(match[3] or 1))}
    return ",".join(_DAYS[day] for day in sorted(days))


def _weekday(text: str) -> int:
    return int(text) if text.isdigit() else _DAYS.index(text)


# --- checks of values ---------------------------------------------------------------------------------------------


def _check_cron(cron: str) -> str:
    if next(fire_times(cron, "UTC", datetime.now(UTC)), None) is None:
        raise ValueError(f"{cron!r} never comes true")
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
        raise ValueError("** is not understood; write one * for each level of directories")
    return path


def _check_options(options: dict[str, Any]) -> dict[str, Any]:
    if problems := [*_problems(options)]:
        raise ValueError("; ".join(problems))
    return options


def _problems(options: Mapping[str, Any], within: str = "") -> Iterator[str]:
    for key, value in options.items():
        name = f"{within}{key}"
        if variable := _environment_name(value):
            if variable not in os.environ:
                yield f"{name} is to come from the environment, where {variable} is not set"
        elif isinstance(value, Mapping):
            yield from _problems(value, f"{name}.")
        elif isinstance(value, str) and (is_secret_name(key) or _SECRET_VALUE.search(value)):
            yield f"{name} looks like a secret, which does not belong into this file; {_ELSEWHERE}"


def _environment_name(value: Any) -> str | None:
    match value:
        case {"env": str(name), **others} if not others:
            return name
    return None


def _names_in_environment(options: Mapping[str, Any]) -> Iterator[str]:
    for value in options.values():
        if name := _environment_name(value):
            yield name
        elif isinstance(value, Mapping):
            yield from _names_in_environment(value)


def _resolved(options: Mapping[str, Any]) -> dict[str, Any]:
    def resolve(value: Any) -> Any:
        if name := _environment_name(value):
            return os.environ[name]
        return _resolved(value) if isinstance(value, Mapping) else value

    return {key: resolve(value) for key, value in options.items()}


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
    """Where /metrics, /health and /report are."""

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 9471
    """0 lets the system choose; the log says which it is."""


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
    """What `compact` says, where it is more than yes or no."""

    enabled: bool = True
    target_size: Annotated[int, BeforeValidator(_parse_size), Field(ge=1)] = TARGET_BYTES
    where: Annotated[str, Field(min_length=1)] | None = None
    sort_by: _Columns = Field(default_factory=list)
    z_order: _Columns = Field(default_factory=list)
    min_files: Annotated[int, Field(ge=1)] = MIN_FILES

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.enabled and find_spec("pyarrow") is None:
            raise ValueError(str(missing("pyarrow", what="compaction")))
        try:
            check_order(self.sort_by, self.z_order)
        except InvalidInputError as error:
            raise ValueError(str(error)) from None
        return self

    def options(self) -> CompactOptions | None:
        if not self.enabled:
            return None
        return CompactOptions(
            target_size=self.target_size,
            where=self.where,
            sort_by=tuple(self.sort_by),
            z_order=tuple(self.z_order),
            min_files=self.min_files,
        )


def _yes_or_no(value: Any) -> Any:
    return {"enabled": value} if isinstance(value, bool) else value


_Compact = Annotated[CompactConfig, BeforeValidator(_yes_or_no)]


class TableConfig(_Part):
    """A [[tables]]: None is what the top level says."""

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
    """The checkpoints of streams that read it, in a store of the same credentials."""
    storage_options: Annotated[dict[str, Any], AfterValidator(_check_options)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_store(self) -> Self:
        try:
            for path in (self.path, *self.streams):
                open_store(replace(parse_location(path), prefix=""), _resolved(self.storage_options))
        except DbioError as error:
            raise ValueError(str(error)) from None
        if self.streams and "*" in self.path:
            raise ValueError("streams belong to one table, and path is a pattern; name the table in a [[tables]]")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """What the file says of a table, or of all tables that match a pattern."""

    path: str
    """As the file has it."""
    location: Location
    cron: str
    timezone: str
    jitter_s: int
    dry_run: bool
    options: VacuumOptions
    memory_mb: int
    """What the process of one vacuum may have in memory."""
    deadline_s: int
    """How long it may take."""
    compact: CompactOptions | None
    """What to put together before each vacuum."""
    streams: Sequence[str]
    """The checkpoints of streams that read the table."""
    storage_options: Mapping[str, Any]
    """As the file has them."""

    @property
    def name(self) -> str:
        """The table's URL, or the pattern in the same spelling."""
        return self.location.url

    @property
    def is_pattern(self) -> bool:
        return "*" in self.location.prefix

    def trigger(self) -> CronTrigger:
        return cron_trigger(self.cron, self.timezone, self.jitter_s)

    def fire_times(self, after: datetime) -> Iterator[datetime]:
        return fire_times(self.cron, self.timezone, after)

    def resolved_options(self) -> dict[str, Any]:
        """The storage options with what comes from the environment: secrets, to be passed on and not to be kept."""
        return _resolved(self.storage_options)


class Config(_Part):
    """The whole file. What a [[tables]] does not say, the top level says for all."""

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
    http: HttpConfig = HttpConfig()
    tables: Annotated[list[TableConfig], Field(min_length=1)]

    @property
    def entries(self) -> Sequence[ConfigEntry]:
        return [self._entry(table) for table in self.tables]

    def _entry(self, table: TableConfig) -> ConfigEntry:
        given = table.model_dump(exclude_none=True)
        said = {key: given.get(key, getattr(self, key)) for key in (*_SETTINGS, *_OPTIONS)}
        return ConfigEntry(
            path=table.path,
            location=parse_location(table.path),
            timezone=self.timezone,
            jitter_s=self.jitter_s,
            options=VacuumOptions(untracked=table.untracked, **{key: said[key] for key in _OPTIONS}),
            compact=(table.compact or self.compact).options(),
            streams=tuple(table.streams),
            storage_options=table.storage_options,
            **{key: said[key] for key in _SETTINGS},
        )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        problems = []
        names = [entry.name for entry in self.entries]
        problems += [f"{name} is there more than once" for name in dict.fromkeys(names) if names.count(name) > 1]
        now = datetime.now(UTC)
        for cron in dict.fromkeys(entry.cron for entry in self.entries):
            times = islice(fire_times(cron, self.timezone, now), 10)
            gap = min((later - earlier for earlier, later in pairwise(times)), default=timedelta.max)
            if gap.total_seconds() <= self.jitter_s:
                problems.append(f"jitter_s = {self.jitter_s} would skip runs of {cron!r}, {gap} apart; give less")
        if problems:
            raise ValueError("; ".join(problems))
        return self


_SETTINGS = ("cron", "dry_run", "memory_mb", "deadline_s")
_OPTIONS = ("retention_hours", "checkpoint_after", "history_days")

_KEYS: Mapping[str, type[BaseModel]] = {"tables": TableConfig, "http": HttpConfig, "compact": CompactConfig}


def _explain(detail: ErrorDetails) -> str:
    """The place and what is wrong there; never the value, which may be a secret that slipped in."""
    place, message = detail["loc"], detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "extra_forbidden":
        name = str(place[-1])
        within = "compact" if "compact" in place[:-1] else str(place[0])
        model = _KEYS.get(within, Config) if len(place) > 1 else Config
        message = f"unknown key {name!r}; known are {', '.join(sorted(model.model_fields))}"
        if is_secret_name(name):
            message += f". It looks like a secret, which does not belong into this file; {_ELSEWHERE}"
        place = place[:-1]
    elif detail["type"] == "missing":
        message = "is missing"
    return f"{_place(place)}: {message}" if place else message


def _place(place: tuple[int | str, ...]) -> str:
    """Tables are counted from 1, as people do."""
    match place:
        case ("tables", int(index), *inner):
            return " ".join([f"[[tables]] number {index + 1}", *map(str, inner)])
        case ("http", *inner):
            return " ".join(["[http]", *map(str, inner)])
    return ".".join(map(str, place))
