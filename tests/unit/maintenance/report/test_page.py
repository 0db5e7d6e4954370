"""The page about tables' health: its structure, that nothing in it leads elsewhere, and that names are text."""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

import dbio_commit as dbio
from dbio_commit import Table
from dbio_commit.base.figures import age_text, size_text
from dbio_commit.cli.report import look_at
from dbio_commit.commit.joint import JointCommit
from dbio_commit.data.footers import inspect_files
from dbio_commit.feed.streams import StreamLag
from dbio_commit.maintenance.report import charts
from dbio_commit.maintenance.report.health import Vacuumed, look
from dbio_commit.maintenance.report.page import POLICY, Subject, render_index, render_page
from dbio_commit.protocol import names
from dbio_commit.protocol.scope import Scope
from dbio_commit.testing import ManualClock, MemoryStore
from tests.builders import World, data, marker
from tests.reports import HOSTILE, Page, busy_table
from tests.writers import write
from vacuum import VacuumOptions

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
GOLDEN = sorted(Path(__file__).parents[3].joinpath("golden").glob("*/table"))
_LOADS = {"a", "area", "audio", "base", "embed", "form", "frame", "iframe", "image", "img", "input", "link", "object",
          "picture", "script", "source", "track", "use", "video"}  # fmt: skip


def look_now(table: Table) -> Subject:
    return look_at(table, VacuumOptions())


def page_of(*subjects: Subject) -> Page:
    return Page(render_page(subjects, at=AT))


def is_self_contained(page: Page) -> bool:
    """Whether nothing in it can load anything; links lead to places in the page."""
    links = [attributes["href"] or "" for attributes in page.all("a")]
    return (
        {tag for tag, _ in page.tags} & _LOADS <= {"a"}
        and all(link.startswith("#") for link in links)
        and not any(name in ("src", "srcset", "style", "background") or name.startswith("on")
                    for _, attributes in page.tags for name in attributes)
    )  # fmt: skip


@pytest.fixture(scope="module")
def busy() -> Subject:
    return look_now(busy_table(days=10))


def test_a_page_has_all_that_is_known_of_a_table(busy: Subject) -> None:
    health = busy.health
    assert health
    assert health.pending
    assert health.last_commit
    text = page_of(busy).text
    headings = ("Live data by partition", "File sizes", "Commits over time", "Garbage, and what", "Pending", "Streams")
    facts = ("memory://lake/orders", "day=2026-11-01", "Vacuum would free", "removed by a commit", "stream-eu/orders")
    for said in (*headings, *facts, health.pending[0].tid, health.last_commit.tid, "It would abort 1 transaction"):
        assert said in text


def test_a_page_refers_to_nothing_outside_of_it_and_forbids_itself_to(busy: Subject) -> None:
    text = render_page([busy, Subject(name="s3://b/c", note="gone", failed=True)], at=AT)
    page = Page(text)
    assert is_self_contained(page)
    assert "@import" not in text
    assert "url(" not in text
    assert POLICY in [attributes.get("content") for attributes in page.all("meta")]
    assert POLICY.startswith("default-src 'none'")


def test_every_chart_is_named_and_described_and_every_id_is_there_once(busy: Subject) -> None:
    page = page_of(busy, busy)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    labelled = [str(attributes["aria-labelledby"]).split() for _, attributes in page.tags
                if "aria-labelledby" in attributes]  # fmt: skip
    assert {id for its in labelled for id in its} <= {*ids}
    pictures = [attributes for attributes in page.all("svg") if attributes.get("aria-hidden") != "true"]
    assert len(pictures) == 4
    assert all(attributes["role"] == "img" and "aria-labelledby" in attributes for attributes in pictures)


def test_numbers_stand_in_a_table_beside_each_chart(busy: Subject) -> None:
    assert busy.health
    page = page_of(busy)
    assert page.texts.count("The numbers") == 2
    for it in busy.health.size_classes:
        assert f"{it.files}" in page.texts
    assert all(attributes.get("scope") in ("row", "col") for attributes in page.all("th"))


def test_several_tables_have_an_index_before_them(busy: Subject) -> None:
    page = page_of(busy, Subject(name="s3://b/gone", note="there is no table at s3://b/gone", failed=True))
    assert [attributes["href"] for attributes in page.all("a")] == ["#table-1", "#table-2"]
    assert {"table-1", "table-2"} <= {attributes.get("id") for attributes in page.all("section")}
    assert page.text.count("something is wrong") == 2
    assert "there is no table at s3://b/gone" in page.text
    assert page_of(busy).all("nav") == []


def test_an_index_links_each_table_to_its_page(busy: Subject) -> None:
    page = Page(render_index([busy, Subject(name="/b")], at=AT, link=lambda name: f"/report?table={name}"))
    assert [attributes["href"] for attributes in page.all("a")] == ["/report?table=memory://lake/orders",
                                                                    "/report?table=/b"]  # fmt: skip
    assert page.all("section") == []
    assert "There is no table." in Page(render_index([], at=AT, link=str)).text


def test_what_fails_comes_first_with_its_cause(busy: Subject) -> None:
    gone = Subject(name="s3://b/gone", cause="AccessDeniedError: ask for rights", failed=True)
    for text in (render_page([busy, gone], at=AT), render_index([busy, gone], at=AT, link=str)):
        page = Page(text)
        assert page.text.index("s3://b/gone") < page.text.index("ask for rights") < page.text.index(busy.name)
    (first, second) = Page(render_page([busy, gone], at=AT)).all("section")
    assert first["aria-labelledby"] == "table-1-name"
    assert second["aria-labelledby"] == "table-2-name"


def test_a_page_of_several_tables_begins_with_what_they_add_up_to(busy: Subject) -> None:
    health = busy.health
    assert health
    assert health.pending
    page = Page(render_index([busy, busy, Subject(name="*", failed=True, has_page=False)], at=AT, link=str))
    oldest = max(health.at - it.started for it in health.pending)
    vacuumed = health.vacuumed
    assert isinstance(vacuumed, Vacuumed)
    garbage = sum(it.size for it in vacuumed.freed.values()) + vacuumed.left.size
    for said in (
        "Tables 2",
        "Failing 1",
        f"Live {size_text(2 * health.live_size)} {2 * health.live_files} files",
        f"Garbage {size_text(2 * garbage)}",
        f"Pending {2 * len(health.pending)} oldest {age_text(oldest)}",
    ):
        assert said in page.text
    assert "Failing" not in page_of(busy).text


def test_a_page_names_the_tables_of_joint_transactions(clock: ManualClock) -> None:
    lake: dict[str, MemoryStore] = {}
    orders, customers = (
        Table.over(MemoryStore(clock, url=f"s3://lake/{it}", lake=lake), clock, inspector=inspect_files)
        for it in ("orders", "customers")
    )
    rows = pa.table({"id": [1]})
    for table in (orders, customers):
        table.write(rows)
    with dbio.transaction() as tx:
        tx.write(rows, orders)
        tx.write(rows, customers)
    with suppress(ZeroDivisionError), patch.object(JointCommit, "abort"), dbio.transaction() as tx:
        tx.write(rows, orders)
        tx.write(rows, customers)
        raise ZeroDivisionError
    assert "Joint transactions with this table also wrote to ../customers" in page_of(look_now(orders)).text
    assert "decided in s3://lake/orders" in page_of(look_now(customers)).text


def test_a_publication_that_is_behind_is_told_with_its_cause(table: Table) -> None:
    write(table)
    table.set({"publish": "delta"})
    behind = {"delta": (None, "another tool has written <there>")}
    health = look(table.snapshot(), at=table.clock.now(), vacuumed="nobody asked", behind=behind)
    text = page_of(Subject(name="t", health=health)).text
    assert "The table is published as delta." in text
    assert "another tool has written <there>" in text


def test_hostile_names_are_text(clock: ManualClock) -> None:
    world = World()
    world.put_json("_dbio_table", {"version": 1, "id": "t", "created": "2026-11-20T00:00:00Z",
                                   "partition_columns": [HOSTILE.replace("\0", "")]})  # fmt: skip
    value = "<script>alert(2)</script>"
    directory = names.format_partition({HOSTILE.replace("\0", ""): value})
    added = [f"{directory}/{data('1')}"]
    app = {"id": HOSTILE, "version": 1}
    world.put_body("_committed_1", marker(added=added, app=app))
    world.put("_committed_2", b'{"added": ["<script>alert(3)</script>/../x"], "removed": []}')
    world.start("3")
    snapshot = Table.over(world, clock).snapshot(ignore_corrupt_markers=True)
    check = Table.over(world, clock).check()
    lag = StreamLag(query=HOSTILE, batch=1, commits=1, files=1, size_bytes=1, oldest=None)
    health = look(snapshot, at=AT, vacuumed=HOSTILE, check=check, advice=HOSTILE, streams=[lag])
    text = render_page(
        [Subject(name=HOSTILE, health=health, note=HOSTILE, cause=HOSTILE, failed=True), Subject(name=HOSTILE)], at=AT
    )
    page = Page(text)
    assert is_self_contained(page)
    assert "<script" not in text
    assert "{{7*7}}" in page.text
    assert page.text.count("<script>alert(1)</script>") >= 8
    assert all(character.isprintable() or character == "\n" for character in text)


def test_hostile_names_are_text_in_charts() -> None:
    stack = charts.Stack(label=HOSTILE, parts=[("bar-1", 1)], tip=HOSTILE)
    drawn = Page(charts.columns([stack], id="c", title=HOSTILE, description=HOSTILE))
    assert {tag for tag, _ in drawn.tags} == {"svg", "title", "desc", "line", "text", "g", "rect"}


@pytest.mark.parametrize("numbers", [[0], [1], [0, 0, 1], [1, 1_000_000], [7] * 100, []])
def test_columns_stay_in_their_chart_and_what_is_there_is_seen(numbers: list[int]) -> None:
    stacks = [charts.Stack(label=str(n), parts=[("bar-1", n), ("bar-2", n)], tip="") for n in numbers]
    rects = Page(charts.columns(stacks, id="c", title="t", description="d")).all("rect")
    assert len(rects) == 2 * sum(map(bool, numbers))
    for rect in rects:
        x, y, width, height = (float(str(rect[name])) for name in ("x", "y", "width", "height"))
        assert height >= 1.5
        assert width > 0
        assert 0 <= x <= x + width <= 720
        assert 0 <= y <= y + height <= 174.1


@pytest.mark.parametrize(
    ("most", "scale"), [(0, 1), (1, 1), (3, 4), (10, 10), (11, 20), (61, 80), (81, 100), (999, 1000)]
)
def test_a_scale_ends_at_a_round_number(most: int, scale: int) -> None:
    assert charts.scale_of(most) == scale


def test_a_table_of_a_hundred_thousand_files_has_a_small_page(clock: ManualClock) -> None:
    world = World()
    world.put_json("_dbio_table", {"version": 1, "id": "t", "created": "2026-11-20T00:00:00Z",
                                   "partition_columns": ["a"]})  # fmt: skip
    for number in range(100):
        added = [f"a={(number * 1000 + i) % 5000}/{data(str(number), i)}" for i in range(1000)]
        body = marker(added=added, operation="append")
        world.put_body(f"_committed_{number}", body, at=AT - timedelta(days=number))
    health = look(Table.over(world, clock).snapshot(), at=AT, vacuumed="nobody asked")
    assert (health.live_files, health.other_partitions) == (100_000, 4980)
    text = render_page([Subject(name="t", health=health)], at=AT)
    assert "and 4,980 others" in Page(text).text
    assert len(text) < 60_000


def test_a_table_without_commits_says_so(table: Table) -> None:
    table.begin().abort()
    page = page_of(look_now(table))
    for said in ("There is no live file.", "no application has written", "fine"):
        assert said in page.text
    write(table)
    assert "The table is not partitioned: 1 file, 4 bytes." in page_of(look_now(table)).text


def test_a_plain_directory_says_what_cannot_be_told() -> None:
    world = World(descriptor=False)
    world.files("a.parquet", "x/b.parquet")
    subject = look_now(Table.over(world, world.clock))
    assert subject.health
    assert subject.health.scope is Scope.DIRECTORY
    page = page_of(subject)
    assert "A directory without _dbio_table" in page.text
    assert "No marker records a commit here" in page.text
    assert "(the root)" in page.text


def test_where_nobody_looked_nothing_is_made_up(table: Table) -> None:
    write(table)
    world = World(descriptor=False)
    world.files("a.parquet")
    vacuumed = Vacuumed(retention_hours=1, dry_run=False)
    for store in (table.store, world):
        found = Table.over(store, world.clock)
        health = look(found.snapshot(), at=AT, vacuumed=vacuumed)
        page = page_of(Subject(name="t", health=health, said="vacuumed"))
        assert "Nothing is wrong" not in page.text
        assert "The last vacuum freed" in page.text
        assert ("Not checked" in page.text) == (store is world)


def test_a_table_with_a_corrupt_marker_has_a_page_that_says_so(table: Table, store: MemoryStore) -> None:
    write(table)
    store.put(names.committed(write(table).tid), b"{")
    subject = look_now(table)
    assert subject.wrong
    page = page_of(subject)
    assert "pending: 1" in page.text
    assert "This is not known:" in page.text


def test_what_is_no_table_is_a_section_that_says_the_error(table: Table) -> None:
    subject = look_now(table)
    assert subject.wrong
    assert "there is no table at" in page_of(subject).text


@pytest.mark.parametrize("root", GOLDEN, ids=lambda path: path.parent.name)
def test_every_golden_directory_has_a_page(root: Path) -> None:
    subject = look_now(Table(root))
    page = page_of(subject)
    assert is_self_contained(page)
    assert not re.search(r"\b(None|Undefined|Markup)\b", page.text)
    assert subject.health or subject.note
