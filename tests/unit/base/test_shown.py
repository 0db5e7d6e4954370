"""What a notebook and a prompt show of results: escaped, bounded, and without a request to the store."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dbio_commit as dbio
from dbio_commit import StoreError, Table
from dbio_commit.base import shown
from dbio_commit.base.shown import MOST_ROWS, MOST_TEXT, Shown
from dbio_commit.maintenance.check import CheckReport, PendingTransaction, WrongSize
from dbio_commit.protocol.commits import CommitList
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import Reason
from dbio_commit.protocol.scope import Scope
from dbio_commit.testing import ManualClock, MemoryStore
from tests import api_page
from tests.builders import World, marker
from tests.reports import HOSTILE, Page
from tests.tiny_parts import in_parts
from tests.writers import write, write_days

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


class Item(NamedTuple):
    path: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Report(Shown):
    url: str = "lake/t"
    ok: bool = True
    live_files: int = 1234567
    live_size: int = 12_345_678
    version: int = 20261120
    since: datetime = AT
    age: timedelta = timedelta(hours=5)
    note: str = ""
    nothing: None = None
    paths: Sequence[str] = ()
    items: Sequence[Item] = ()
    causes: Mapping[str, object] = field(default_factory=dict)
    hidden: str = field(default="a secret", repr=False)


def cells(html: str) -> dict[str, str]:
    """The rows of tables of facts: name -> value."""
    found = Page(html).texts
    return dict(zip(found[1::2], found[2::2], strict=False))


def test_a_table_of_facts_has_units_and_leaves_out_what_is_empty() -> None:
    assert cells(Report()._repr_html_()) == {
        "url": "lake/t",
        "ok": "yes",
        "live files": "1,234,567",
        "live size": "12.3 MB",
        "version": "20261120",
        "since": "2026-11-20 12:00:00Z",
        "age": "5 h",
    }


def test_a_sequence_is_a_table_of_its_first_rows_and_a_count_of_the_others() -> None:
    page = Page(Report(paths=[f"p{number}" for number in range(1254)], items=[Item("f", 1000)])._repr_html_())
    assert len(page.all("table")) == 3
    assert page.text.endswith("items: 1 path size f 1.0 kB")
    assert "paths: 1,254" in page.text
    assert "p19 … 1,234 more" in page.text
    assert "p20" not in page.text
    assert "more" not in Page(Report(paths=["p"] * MOST_ROWS)._repr_html_()).text


def test_a_mapping_is_a_table_of_names_and_values() -> None:
    assert "causes: 2 value a gone b 3" in Page(Report(causes={"a": "gone", "b": [1, 2, 3]})._repr_html_()).text


def test_a_repr_is_short_and_names_what_is_left_out() -> None:
    report = Report(paths=[f"p{number}" for number in range(1254)], causes={"a": "x" * 10_000})
    text = repr(report)
    assert str(report) == text
    assert text.startswith("Report(url='lake/t', ok=True, live_files=1234567, ")
    assert "paths=['p0', 'p1', 'p2', … 1,251 more]" in text
    assert "characters left out" in text
    assert len(text) < 600
    assert not any(name in text for name in ("note", "nothing", "items", "secret"))


@given(st.lists(st.text(), max_size=30), st.text(), st.dictionaries(st.text(), st.text(), max_size=5))
def test_any_texts_give_whole_tables_of_bounded_size(paths: list[str], url: str, causes: dict[str, str]) -> None:
    html = Report(url=url, paths=paths, causes=causes)._repr_html_()
    assert {tag for tag, _ in Page(html).tags} <= {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert len(html) < 200 * 8 * MOST_TEXT


def is_plain(html: str) -> bool:
    """Whether it has only tables, whose only attributes are those of this package."""
    page = Page(html)
    return (
        {tag for tag, _ in page.tags} <= {"table", "caption", "thead", "tbody", "tr", "th", "td"}
        and {name for _, attributes in page.tags for name in attributes} <= {"class", "style", "colspan"}
        and all("mathjax_ignore" in str(it["class"]) for it in page.all("table"))
        and all(character.isprintable() for character in html)
    )


def test_hostile_names_are_text_in_every_cell() -> None:
    html = Report(
        url=HOSTILE, paths=[HOSTILE] * 3, items=[Item(HOSTILE, 1)], causes={HOSTILE: HOSTILE, "$x$": "$\\href{a}{b}$"}
    )._repr_html_()
    assert is_plain(html)
    assert "<script" not in html
    assert Page(html).text.count("<script>alert(1)</script>") == 7
    assert is_plain(shown.facts(HOSTILE, {HOSTILE: HOSTILE}))
    assert is_plain(shown.rows(HOSTILE, [HOSTILE], [[HOSTILE]], count=1))


# --- the objects of the package -----------------------------------------------------------------------------------


def silent(store: MemoryStore) -> None:
    """From now on, each request to the store fails."""

    def refuse(*arguments: object) -> None:
        raise StoreError(f"a request was made: {arguments}")

    store.before = refuse


@pytest.fixture
def busy(table: Table, clock: ManualClock) -> Table:
    for number in range(30):
        clock.advance(timedelta(hours=1))
        transaction = table.begin(partition_by=["day"], app=("loader", number))
        transaction.commit(SCHEMA)
    write_days(table, "append", **{"1": b"rows"})
    return table


def test_a_table_is_shown_without_a_request_and_without_the_values_of_its_options() -> None:
    table = Table("s3://lake/t", {"key": "AKIA", "secret": "hush", "client_kwargs": {"endpoint_url": "http://[::1]:1"}})
    html = table._repr_html_()
    assert is_plain(html)
    assert cells(html)["root"] == "s3://lake/t"
    assert cells(html)["storage options"] == "key, secret, client_kwargs"
    assert "hush" not in html


def test_snapshots_commits_and_histories_are_shown_without_a_request(busy: Table, store: MemoryStore) -> None:
    snapshot, history = busy.snapshot(), busy.history()
    silent(store)
    html = snapshot._repr_html_()
    assert is_plain(html)
    assert {"files": "1", "commits": "31", "partition columns": "day"}.items() <= cells(html).items()
    assert isinstance(history, list)
    assert isinstance(history, CommitList)
    page = Page(history._repr_html_())
    assert is_plain(history._repr_html_())
    assert "Commits: 31" in page.text
    assert "… 11 more" in page.text
    assert "loader, 29" in page.text
    assert cells(history[0]._repr_html_())["files added"] == "1"


def test_a_large_table_is_shown_without_reading_its_parts(busy: Table) -> None:
    busy.checkpoint()
    large = in_parts(busy)
    assert isinstance(large.store, MemoryStore)
    snapshot, history = large.snapshot(), large.snapshot().history()
    silent(large.store)
    assert {"files": "1", "commits": "not counted"}.items() <= cells(snapshot._repr_html_()).items()
    assert isinstance(history, CommitList)
    assert "Commits: 31" in Page(history._repr_html_()).text
    assert is_plain(history[-1]._repr_html_())


def test_a_history_is_still_a_list(busy: Table) -> None:
    history = busy.history()
    assert history == [*history]
    assert type(history[:2]) is list
    assert [it.tid for it in reversed(history)] == list(busy.snapshot().tids)


def test_columns_and_settings_of_a_snapshot_are_shown(table: Table) -> None:
    struct = {"type": "struct", "fields": []}
    fields = [
        {"name": f"c{n}", "type": struct if n == 3 else "long", "nullable": True, "metadata": {}} for n in range(99)
    ]
    write(table, schema={"type": "struct", "fields": fields})
    table.set({"publish": "delta"})
    text = Page(table.snapshot()._repr_html_()).text
    assert "Columns: 99 column type c0 long" in text
    assert "c3 struct" in text
    assert "… 79 more" in text
    assert "Settings publish delta" in text


def test_hostile_names_in_a_table_are_text(clock: ManualClock) -> None:
    world = World()
    world.put_body("_committed_1", marker(app={"id": HOSTILE, "version": 1}))
    snapshot = Table.over(world, clock).snapshot()
    snapshot = replace(snapshot, url=HOSTILE, partition_columns=(HOSTILE,))
    for it in (snapshot, snapshot.history(), snapshot.history()[0]):
        assert is_plain(it._repr_html_())  # type: ignore[union-attr]
        assert "&lt;script&gt;" in it._repr_html_()  # type: ignore[union-attr]


REPORTS: dict[str, Callable[[Table, Path], Any]] = {
    "check": lambda table, place: table.check(),
    "vacuum": lambda table, place: table.vacuum(),
    "compact": lambda table, place: table.compact(dry_run=True),
    "copy": lambda table, place: Table(place / "a").copy(str(place / "b")),
    "drop": lambda table, place: Table(place / "a").drop(everything=True),
    "plan_restore": lambda table, place: table.plan_restore(table.history()[-1].tid),
    "show": lambda table, place: table.show(table.history()[0].tid),
    "diff": lambda table, place: table.diff(table.history()[-1].tid),
    "trace": lambda table, place: table.trace(table.snapshot().files[0].path),
    "changes": lambda table, place: table.changes(table.history()[-1].tid)[0],
    "publish": lambda table, place: Table(place / "a").publish("spark")[0],
}


@pytest.mark.parametrize("name", REPORTS)
def test_every_report_has_tables_for_notebooks_and_a_short_repr(
    name: str, busy: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dbio_commit.maintenance import drop

    monkeypatch.setattr(drop, "SETTLE_S", 0)
    write(Table(tmp_path / "a"))
    report = REPORTS[name](busy, tmp_path)
    assert isinstance(report, Shown)
    assert is_plain(report._repr_html_())
    assert type(report).__name__ in Page(report._repr_html_()).text
    assert len(repr(report)) < 2000


def test_no_report_is_left_out() -> None:
    reports = {
        name for names in api_page.RESULTS.values() for name in names if name.endswith(("Report", "Plan", "Lag"))
    }
    for module in api_page.RESULTS:
        import_module(module)
    kinds = {kind.__name__ for kind in Shown.__subclasses__()}
    assert reports <= kinds


def test_a_long_check_report_is_short(table: Table) -> None:
    paths = [f"day={number}/part-{random.Random(number).random()}.parquet" for number in range(100_000)]
    entries = [Entry(path, 1, AT) for path in paths]
    report = CheckReport(
        url="s3://lake/t",
        scope=Scope.TABLE,
        live_files=len(paths),
        live_size=10**12,
        missing=paths,
        missing_size=10**9,
        wrong_size=[WrongSize(path=path, expected=1, found=2) for path in paths],
        corrupt=dict.fromkeys(paths, "is corrupt"),
        pending=[PendingTransaction(tid=path, started=AT, age=timedelta(1), files=1, size=1) for path in paths],
        garbage={Reason.REMOVED: entries},
        foreign=entries,
        misread=dict.fromkeys(paths, "is empty"),
    )
    assert len(repr(report)) == len(str(report)) < 4000
    html = report._repr_html_()
    assert is_plain(html)
    assert len(html) < 60_000
    assert Page(html).text.count("… 99,980 more") == 6
    assert "removed by a commit" in Page(html).text


def test_a_message_that_names_very_many_things_fits_a_cell() -> None:
    error = dbio.InvalidInputError(f"{'; '.join(map(str, range(100_000)))}. Nothing was written: cast to fit")
    assert len(str(error)) <= 4000
    assert str(error).startswith("0; 1; 2; ")
    assert str(error).endswith("99999. Nothing was written: cast to fit")
    lines = dbio.CheckpointLostError("is lost", *(f"Lost: {number}" for number in range(100_000)), "run this")
    assert len(str(lines).splitlines()) == 60
    assert "… 99,943 lines left out …" in str(lines)
    assert str(lines).endswith("run this")
    short = dbio.InvalidInputError(*map(str, range(60)))
    assert short.args == tuple(map(str, range(60)))
