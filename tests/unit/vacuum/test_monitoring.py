"""docker/monitoring: the dashboard and the alerts parse, and name only metrics and labels that the service has.

promtool, which `make test-promtool` builds, checks the alerts too, and runs their tests.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from vacuum.metrics import Metrics

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "docker/monitoring"
OPERATIONS = ROOT / "docs/OPERATIONS.md"
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
PROMTOOL = os.environ.get("DBIO_TEST_PROMTOOL") or shutil.which("promtool")
"""From `make test-promtool`, or that of the machine."""

QUERIES = {
    **{f"{it['title']} {target['refId']}": target["expr"] for it in PANELS for target in it["targets"]},
    **{it["alert"]: it["expr"] for it in RULES},
}
each_query = pytest.mark.parametrize("query", QUERIES.values(), ids=list(QUERIES))
each_panel = pytest.mark.parametrize("panel", PANELS, ids=[it["title"] for it in PANELS])
each_rule = pytest.mark.parametrize("rule", RULES, ids=[it["alert"] for it in RULES])


def known() -> dict[str, set[str]]:
    """The series that the service can have, by name, and the labels of each."""
    metrics = Metrics()
    text = generate_latest(metrics.registry).decode()
    labels = {it._name: {*it._labelnames} for it in vars(metrics).values() if hasattr(it, "_labelnames")}
    labels |= {it._name: {*it._labelnames} for its in (metrics._state, metrics._behind) for it in its.values()}
    families = {it.name: it.type for it in text_string_to_metric_families(text)}
    suffixes = {"counter": ["_total"], "summary": ["_sum", "_count"], "gauge": [""]}
    found = {f"{name}{end}": labels[name] for name in labels for end in suffixes[families[name]]}
    assert len(found) >= 25
    return found


SERIES = known()


def parsed(query: str) -> promql_parser.Expr:
    """Raises ValueError for what is no PromQL. Grafana replaces its own variables before Prometheus sees the query."""
    return promql_parser.parse(query.replace("$__range", "1h").replace("$__rate_interval", "5m"))


def nodes(query: str) -> list[promql_parser.Expr]:
    found: list[promql_parser.Expr] = []
    promql_parser.walk(parsed(query), found.append)
    return found


def selectors(query: str) -> list[promql_parser.VectorSelector]:
    return [it for it in nodes(query) if isinstance(it, promql_parser.VectorSelector)]


@each_query
def test_a_query_reads_only_series_and_labels_that_the_service_has(query: str) -> None:
    found = selectors(query)
    assert found
    for it in found:
        assert it.name in SERIES
        assert {matcher.name for matcher in it.matchers.matchers} <= SERIES[str(it.name)]


@pytest.mark.parametrize("query", ["sum(rate(dbio_vacuum_runs_total))", "dbio_vacuum_runs_total{", "1 +"])
def test_what_is_no_query_is_refused(query: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parsed(query)


@each_query
def test_a_counter_is_read_by_its_increase_and_only_a_counter_is(query: str) -> None:
    in_ranges = {it.vector_selector.name for it in nodes(query) if isinstance(it, promql_parser.MatrixSelector)}
    is_counter = re.compile(r".*_(total|sum|count)").fullmatch
    assert {it.name for it in selectors(query) if is_counter(str(it.name))} - {"dbio_vacuum_runs_total"} <= in_ranges
    assert all(is_counter(str(it)) for it in in_ranges)


@each_query
def test_labels_in_a_text_are_those_of_the_series(query: str) -> None:
    texts = [it["legendFormat"] for panel in PANELS for it in panel["targets"] if it["expr"] == query]
    texts += [it["annotations"]["summary"].replace("$labels.", "") for it in RULES if it["expr"] == query]
    labels = set.union(*(SERIES[str(it.name)] for it in selectors(query)))
    for text in texts:
        named = set(re.findall(r"\{\{ ?(\w+) ?\}\}", text))
        assert named <= labels | {"value"}, text


def test_every_metric_is_on_the_dashboard_or_in_an_alert() -> None:
    used = {str(it.name) for query in QUERIES.values() for it in selectors(query)}
    others = {
        *(
            "dbio_vacuum_aborted_transactions_total",
            "dbio_vacuum_checkpoints_total",
            "dbio_vacuum_compacted_files_total",
        ),
        *("dbio_vacuum_deleted_files_total", "dbio_vacuum_garbage_files", "dbio_vacuum_small_bytes"),
        "dbio_vacuum_idle_runs_total",
        *("dbio_vacuum_stream_behind_bytes", "dbio_vacuum_stream_behind_files"),
    }
    assert SERIES.keys() - used == others


# --- the dashboard ------------------------------------------------------------------------------------------------


@each_panel
def test_a_panel_asks_the_chosen_source_for_the_chosen_tables(panel: dict[str, Any]) -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert panel["datasource"] == chosen
    assert panel["fieldConfig"]["defaults"]["unit"] in {"short", "s", "decbytes"}
    for target in panel["targets"]:
        assert target["datasource"] == chosen
        for it in selectors(target["expr"]):
            if "table" in SERIES[str(it.name)]:
                assert [(matcher.name, matcher.value) for matcher in it.matchers.matchers] == [("table", "$table")]


def test_panels_have_ids_and_places_of_their_own() -> None:
    assert len({it["id"] for it in PANELS}) == len({it["title"] for it in PANELS}) == len(PANELS)
    cells = [
        (x, y)
        for place in (it["gridPos"] for it in PANELS)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert all(0 <= x < 24 for x, _ in cells)


def test_the_variables_are_those_that_panels_use() -> None:
    variables = {it["name"]: it for it in DASHBOARD["templating"]["list"]}
    assert variables.keys() == {"datasource", "table"}
    (series, label) = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables["table"]["query"]["query"]).groups()  # type: ignore[union-attr]
    assert label in SERIES[series]


# --- the alerts ---------------------------------------------------------------------------------------------------


@each_rule
def test_an_alert_says_how_bad_it_is_what_happened_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"].keys() == {"summary", "runbook"}
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    text = (ROOT / "docs" / page).read_text()
    assert f"\n### {anchor.capitalize()}\n" in text or f"\n## {anchor.capitalize()}\n" in text
    assert f"| `{rule['alert']}` |" in text, "it has a row with what to do"


@pytest.mark.skipif(not PROMTOOL, reason="make test-promtool")
@pytest.mark.parametrize("command", ["check rules --lint=all --lint-fatal alerts.yaml", "test rules alerts.test.yaml"])
def test_promtool_finds_nothing(command: str) -> None:
    done = subprocess.run([str(PROMTOOL), *command.split()], cwd=MONITORING, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
