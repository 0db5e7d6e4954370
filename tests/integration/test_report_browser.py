"""The page of `dbio report` in a real browser, under `make test-browser`: what it looks like, and what it asks for.

The page loads only itself, and its text has the contrast that WCAG asks for: light and dark, wide and narrow.
`DBIO_TEST_SHOTS=DIRECTORY` keeps pictures: look at them after a change of the page.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from dbio_commit import Table
from dbio_commit.cli.report import look_at
from dbio_commit.maintenance.report.page import Subject, render_page
from dbio_commit.testing import ManualClock, MemoryStore
from tests.browser import Tab, browser
from tests.reports import HOSTILE, busy_table
from vacuum import VacuumOptions
from vacuum.listener import listening

is_asked_for = os.environ.get("DBIO_TEST_BROWSER") == "yes"
pytestmark = pytest.mark.skipif(not is_asked_for, reason="make test-browser")

NOT_SEEN = """[...document.querySelectorAll("svg, h1, h2, h3, table, .tile")].filter(it => it.checkVisibility()
    && !(it.getBoundingClientRect().width > 0 && it.getBoundingClientRect().height > 0)).length"""
CUT_OFF = """[...document.querySelectorAll("svg.chart text")].filter(it => {
    const text = it.getBoundingClientRect(), chart = it.closest("svg").getBoundingClientRect();
    return text.left < chart.left - 1 || text.right > chart.right + 1 || text.bottom > chart.bottom + 1}).length"""
OVERLAPS = """[...document.querySelectorAll("svg.chart")].filter(chart => {
    const labels = [...chart.querySelectorAll("text")].map(it => it.getBoundingClientRect());
    return labels.some((a, i) => labels.some((b, j) => i < j && a.left < b.right && b.left < a.right
        && a.top < b.bottom && b.top < a.bottom))}).length"""
SHARES = """[...document.querySelectorAll("svg.chart g rect")].map(it => it.getBoundingClientRect().height)"""
CONTRAST = """(() => {
    const linear = it => it <= 0.03928 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4;
    const light = colour => { const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(it => linear(it / 255));
        return .2126 * r + .7152 * g + .0722 * b };
    const ground = it => { for (; it; it = it.parentElement) { const found = getComputedStyle(it).backgroundColor;
        if (found != "rgba(0, 0, 0, 0)") return found } return "rgb(255, 255, 255)" };
    return Math.min(...[...document.querySelectorAll("p, th, td, dt, dd, a, h1, h2, h3, .state, small, svg.chart text")]
        .filter(it => it.textContent.trim() && it.checkVisibility()).map(it => {
            const style = getComputedStyle(it), text = it.closest("svg") ? style.fill : style.color;
            const [a, b] = [light(text), light(ground(it))];
            return (Math.max(a, b) + .05) / (Math.min(a, b) + .05) })) })()"""


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def page() -> str:
    table, clock = busy_table(), ManualClock()
    empty = Table.over(MemoryStore(clock, url=f"memory://lake/{HOSTILE}"), clock)
    empty.begin(app=(HOSTILE, 1)).commit()
    options = VacuumOptions()
    subjects = [look_at(table, options), look_at(empty, options), Subject(name="s3://gone", note=HOSTILE, failed=True)]
    return render_page(subjects, at=table.clock.now())


@pytest.fixture
def url(page: str, tmp_path: Path) -> str:
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where pictures are put; DBIO_TEST_SHOTS names a directory to keep them in."""
    directory = Path(os.environ.get("DBIO_TEST_SHOTS", tmp_path))
    directory.mkdir(exist_ok=True)
    return directory


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 420])
def test_a_page_is_seen_and_read_in_light_and_dark_on_wide_and_narrow_screens(
    tab: Tab, url: str, shots: Path, scheme: str, width: int
) -> None:
    tab.open(url, scheme=scheme, width=width)
    tab.screenshot(shots / f"report-{scheme}-{width}.png")
    assert tab.evaluate("document.querySelectorAll('svg.chart').length") == 3
    assert tab.evaluate(NOT_SEEN) == 0
    assert tab.evaluate(CUT_OFF) == 0
    assert tab.evaluate(OVERLAPS) == 0
    assert min(tab.evaluate(SHARES)) > 0
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate(CONTRAST) >= 4.5  # what WCAG asks for
    is_dark = tab.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g)[0] < 128")
    assert is_dark == (scheme == "dark")


def test_readme_has_a_picture_of_the_page(tab: Tab, tmp_path: Path) -> None:
    """`make picture` keeps it as docs/report.png."""
    table = busy_table(url="s3://lake/orders")
    file, picture = tmp_path / "report.html", Path(os.environ.get("DBIO_TEST_PICTURE", tmp_path / "report.png"))
    file.write_text(render_page([look_at(table, VacuumOptions())], at=table.clock.now()), encoding="utf-8")
    tab.open(file.as_uri(), width=1000)
    tab.screenshot(picture, below="tr:nth-child(8)")
    assert picture.stat().st_size < 200_000


def test_a_page_asks_nobody_for_anything_and_complains_of_nothing(tab: Tab, url: str) -> None:
    tab.open(url)
    assert tab.requested == [url]
    assert tab.complaints == []


def test_names_are_text_in_the_page_and_nothing_else(tab: Tab, url: str) -> None:
    tab.open(url)
    assert tab.evaluate("document.querySelectorAll('script, img, iframe, [onerror]').length") == 0
    assert "<script>alert(1)</script>" in tab.evaluate("document.body.textContent")
    assert "{{7*7}}" in tab.evaluate("document.body.textContent")


def test_a_page_that_a_name_got_into_as_markup_could_load_nothing(tab: Tab, page: str, tmp_path: Path) -> None:
    """What holds where the escaping does not: the page's own policy."""
    file = tmp_path / "broken.html"
    file.write_text(
        page.replace("</main>", "<script>document.title = 'run'</script><img src='http://127.0.0.1:9/x'></main>")
    )
    tab.open(file.as_uri())
    assert tab.evaluate("document.title") != "run"
    assert len(tab.complaints) == 2
    assert all("Content Security Policy" in it["entry"]["text"] for it in tab.complaints)


def test_the_services_endpoint_leads_to_the_page(tab: Tab, page: str) -> None:
    def report(table: str | None) -> str:
        return page

    with ExitStack() as stack:
        url = stack.enter_context(listening("127.0.0.1", 0, CollectorRegistry(), lambda: (True, {}), report))
        tab.open(f"{url}/")
        link = tab.evaluate("document.querySelector('a').href")
        tab.open(link)
        assert tab.evaluate("document.querySelectorAll('svg.chart').length") == 3
        assert tab.complaints == []
        assert tab.requested == [f"{url}/report"]
