"""Renders the health of tables as one self-contained HTML page: no network, no script, light and dark colours.

Every text passes through `visible` and is escaped. The page's policy forbids it to load anything.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dbio_commit import __version__
from dbio_commit.base.figures import age_text, count_text, number_text, size_text, time_text
from dbio_commit.base.texts import visible
from dbio_commit.maintenance.report import charts
from dbio_commit.maintenance.report.health import ABORTED, Activity, Amount, Period, SizeClass, TableHealth, Vacuumed
from dbio_commit.protocol.garbage import Reason

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The content security policy, for the head of the page and for the header of a server."""

_OPERATIONS = ("append", "overwrite", "overwrite_partitions", "rewrite", "adopt", "unknown", ABORTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A table on the page."""

    name: str
    health: TableHealth | None = None
    note: str = ""
    """A remark, such as why there is no more."""
    cause: str = ""
    """Why something failed, without secrets."""
    said: str = ""
    """Its state in a few words. By default, what a check has found."""
    failed: bool = False
    """Whether something failed that no check finds."""
    has_page: bool = True
    """Whether it has a page or a section of its own. A pattern that has no table has none."""

    @property
    def wrong(self) -> bool:
        return self.failed or bool(self.health and self.health.ok is False)

    @property
    def state(self) -> str:
        """A class of the page's style."""
        return "wrong" if self.wrong else "fine" if self.health else "unknown"

    @property
    def state_text(self) -> str:
        return self.said or ("something is wrong" if self.wrong else "fine")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTotals:
    """The totals of the tables on a page whose health is known."""

    tables: int
    failing: int
    """Tables, and patterns without a table, with which something is wrong."""
    live: Amount
    garbage: Amount
    """The garbage that a vacuum deletes, now or later."""
    pending: int
    oldest_pending: timedelta | None

    @classmethod
    def of(cls, subjects: Sequence[Subject]) -> "PageTotals":
        healths = [it.health for it in subjects if it.health]
        garbage = [it for health in healths for it in _garbage(health)]
        pending = [health.at - it.started for health in healths for it in health.pending or ()]
        return cls(
            tables=sum(it.has_page for it in subjects),
            failing=sum(it.wrong for it in subjects),
            live=Amount(objects=sum(it.live_files for it in healths), size=sum(it.live_size for it in healths)),
            garbage=Amount(objects=sum(it.objects for it in garbage), size=sum(it.size for it in garbage)),
            pending=len(pending) + sum(it.other_pending for it in healths),
            oldest_pending=max(pending, default=None),
        )


def _garbage(health: TableHealth) -> list[Amount]:
    """The garbage that is there now. A dry run has freed nothing."""
    vacuumed = health.vacuumed
    if isinstance(vacuumed, str):
        return []
    return [vacuumed.left, *(vacuumed.freed.values() if vacuumed.dry_run else ())]


def worst_first(subjects: Sequence[Subject]) -> list[Subject]:
    """The subjects: those with which something is wrong, then all others, each in the order given."""
    return sorted(subjects, key=lambda it: not it.wrong)


def render_page(subjects: Sequence[Subject], *, at: datetime, back: str = "") -> str:
    """The page with an index and a section for each table. Tables that fail come first.

    `back` is a link to a page above this one.
    """
    return _render(subjects, at=at, back=back, link=None)


def render_index(subjects: Sequence[Subject], *, at: datetime, link: Callable[[str], str]) -> str:
    """Only the index, which links to a page for each table. Tables that fail come first, with the cause."""
    return _render(subjects, at=at, back="", link=link)


def rendered(
    subjects: Sequence[Subject],
    render: Callable[[Sequence[Subject]], str],
    failed: Callable[[Subject, Exception], None],
) -> tuple[str, Sequence[Subject]]:
    """The page, and the subjects on it. A table that cannot be rendered is shown without details, and is passed to
    `failed`."""
    try:
        return render(subjects), subjects
    except Exception:  # find out which tables cannot be rendered

        def shown(it: Subject) -> Subject:
            try:
                render([it])
            except Exception as error:
                failed(it, error)
                return Subject(name=it.name, note="It cannot be shown; see the log", failed=True, has_page=it.has_page)
            return it

        left = [shown(it) for it in subjects]
        return render(left), left


def _render(subjects: Sequence[Subject], *, at: datetime, back: str, link: Callable[[str], str] | None) -> str:
    return _TEMPLATE.render(
        subjects=worst_first(subjects),
        totals=PageTotals.of(subjects),
        at=at,
        back=back,
        link=link,
        policy=POLICY,
        version=__version__,
    )


# --- charts -------------------------------------------------------------------------------------------------------


def _sizes_chart(classes: Sequence[SizeClass], id: str) -> Markup:
    most = max(classes, key=lambda it: it.files)
    stacks = [
        charts.Stack(
            label=size_class_text(it).replace("below", "<"),
            parts=[("bar-1", it.files)],
            tip=f"{size_class_text(it)}: {count_text(it.files, 'file')}, {size_text(it.size)}",
        )
        for it in classes
    ]
    text = f"Number of live files by size. Most, {number_text(most.files)}, are {size_class_text(most)}."
    return charts.columns(stacks, id=id, title="Sizes of live files", description=text)


def size_class_text(it: SizeClass) -> str:
    return f"below {size_text(it.below).replace('.0 ', ' ')}"


def _activity_chart(activity: Activity, id: str) -> Markup:
    stacks = [
        charts.Stack(
            label=_label(activity, it.begins),
            parts=[(f"op-{name}", it.decided[name]) for name in _OPERATIONS if name in it.decided],
            tip=f"{period_text(activity, it)}: {decided_text(it)}",
        )
        for it in activity.periods
    ]
    total = sum(sum(it.decided.values()) for it in activity.periods)
    first, last = activity.periods[0].begins, activity.periods[-1].begins + activity.length
    text = f"{count_text(total, 'transaction')} by operation, from {time_text(first)} to {time_text(last)}."
    return charts.columns(stacks, id=id, title="Commits over time", description=text)


def period_text(activity: Activity, period: Period) -> str:
    text = f"{period.begins.astimezone(UTC):%Y-%m-%d %H:%M}Z"
    return text.removesuffix(" 00:00Z") if activity.length >= timedelta(days=1) else text


def _label(activity: Activity, begins: datetime) -> str:
    if activity.length < timedelta(hours=1):
        return f"{begins:%H:%M}"
    if activity.length < timedelta(days=1):
        return f"{begins:%m-%d %H:%M}"
    return f"{begins:%m-%d}" if activity.length < timedelta(days=7) else f"{begins:%Y-%m-%d}"


def decided_text(period: Period) -> str:
    return ", ".join(f"{number_text(period.decided[name])} {name}" for name in _OPERATIONS if name in period.decided)


def _operations(activity: Activity) -> list[str]:
    """The operations that occur."""
    return [name for name in _OPERATIONS if any(name in it.decided for it in activity.periods)]


def length_text(length: timedelta) -> str:
    days = length // timedelta(days=1)
    return count_text(days, "day") if days else age_text(length)


# --- what vacuum freed and keeps ----------------------------------------------------------------------------------


def total(amounts: Mapping[Reason, Amount]) -> Amount:
    return Amount(objects=sum(it.objects for it in amounts.values()), size=sum(it.size for it in amounts.values()))


def _reason_rows(vacuumed: Vacuumed) -> list[tuple[Reason, Amount, Amount]]:
    """Each reason, with what was freed and what was kept."""
    reasons = [reason for reason in Reason if reason in vacuumed.freed or reason in vacuumed.kept]
    return [(it, vacuumed.freed.get(it, Amount()), vacuumed.kept.get(it, Amount())) for it in reasons]


def _sum_of_sizes(row: tuple[Reason, Amount, Amount]) -> int:
    _, freed, kept = row
    return freed.size + kept.size


# --- the template -------------------------------------------------------------------------------------------------


def _finalize(value: Any) -> Any:
    """Makes characters visible that steer text, such as marks of direction."""
    return visible(value) if type(value) is str else value


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("dbio_commit.maintenance.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "activity_chart": _activity_chart,
        "age": age_text,
        "count_of": count_text,
        "decided": decided_text,
        "length_of_time": length_text,
        "number": number_text,
        "operations": _operations,
        "size": size_text,
        "size_class": size_class_text,
        "sizes_chart": _sizes_chart,
        "time": time_text,
        "sum_of_sizes": _sum_of_sizes,
        "total": total,
    }
    environment.globals |= {"bar": charts.bar, "period_text": period_text, "reason_rows": _reason_rows}
    return environment


_TEMPLATE = _environment().get_template("page.html.jinja")
