"""Makes the map of all modules for the site, `docs/MAP.md`.

A line of it has a module, the first line of its docstring, and where it is tested: by its namesakes,
`tests/unit/<room>/test_<module>*.py`, or else by what `ELSEWHERE` names.
"""

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]

ELSEWHERE = {
    "dbio_commit/base/clock.py": ["tests/simulation"],
    "dbio_commit/base/internal.py": ["tests/unit/test_api.py"],
    "dbio_commit/base/interrupts.py": ["tests/unit/cli/test_interrupts.py"],
    "dbio_commit/base/arguments.py": ["tests/unit/test_wrong_arguments.py"],
    "dbio_commit/base/options.py": ["tests/unit/test_wrong_arguments.py"],
    "dbio_commit/base/progress.py": ["tests/unit/cli"],
    "dbio_commit/cli/*": ["tests/unit/cli", "tests/test_docs.py"],
    "dbio_commit/commit/*": ["tests/unit/commit", "tests/simulation"],
    "dbio_commit/data/data_file.py": ["tests/unit/data/test_physical.py", "tests/integration/test_types_roundtrip.py"],
    "dbio_commit/data/fitting.py": [
        "tests/unit/commit/test_transaction_files.py",
        "tests/unit/maintenance/test_adopt_columns.py",
    ],
    "dbio_commit/data/conditions/*": ["tests/unit/data/conditions"],
    "dbio_commit/data/variants.py": ["tests/unit/data/test_physical.py"],
    "dbio_commit/data/thrift.py": ["tests/unit/data/test_chunks.py", "tests/fuzz"],
    "dbio_commit/data/*": ["tests/unit/data", "tests/unit/spark/write", "tests/fuzz"],
    "dbio_commit/feed/streams.py": ["tests/unit/feed/test_follow.py", "tests/unit/cli"],
    "dbio_commit/log/found_columns.py": ["tests/unit/spark/read/test_infer.py", "tests/integration/test_frames.py"],
    "dbio_commit/log/frames/*": ["tests/unit/log/frames", "tests/integration/test_frames.py"],
    "dbio_commit/log/*": ["tests/unit/log", "tests/simulation"],
    "dbio_commit/protocol/as_of.py": ["tests/unit/protocol/test_state.py", "tests/unit/log"],
    "dbio_commit/protocol/markers/*": ["tests/unit/protocol/test_markers.py"],
    "dbio_commit/protocol/types/*": [
        "tests/unit/protocol/test_types.py",
        "tests/unit/protocol/test_partition_values.py",
    ],
    "dbio_commit/protocol/*": ["tests/unit/protocol", "tests/test_golden.py", "tests/fuzz"],
    "dbio_commit/spark/catalog/changes.py": ["tests/integration/test_sql_procedures.py"],
    "dbio_commit/spark/catalog/procedures.py": ["tests/integration/test_sql_procedures.py"],
    "dbio_commit/spark/catalog/reads.py": ["tests/integration/test_reads.py"],
    "dbio_commit/spark/catalog/register.py": ["tests/integration/test_spark_catalog.py"],
    "dbio_commit/spark/catalog/feeds.py": ["tests/integration/test_sql_streams.py"],
    "dbio_commit/spark/catalog/statements.py": [
        "tests/integration/test_sql_changes.py",
        "tests/integration/test_sql_histories.py",
    ],
    "dbio_commit/spark/catalog/creation.py": [
        "tests/integration/test_sql_create.py",
        "tests/integration/test_sql_definitions.py",
    ],
    "dbio_commit/spark/catalog/*": [f"tests/integration/test_sql_{it}.py" for it in ("read", "changes", "create")],
    "dbio_commit/spark/committer/*": [
        "tests/integration/test_spark_committer.py",
        "tests/integration/test_committer_edges.py",
        "tests/integration/test_committer_sessions.py",
    ],
    "dbio_commit/spark/feed/*": [
        "tests/integration/test_changes.py",
        "tests/integration/test_stream_sink.py",
        "tests/integration/test_stream_source.py",
        "tests/integration/test_sql_streams.py",
    ],
    "dbio_commit/spark/serve.py": ["tests/integration/test_serve.py"],
    "dbio_commit/spark/read/states.py": [f"tests/integration/test_sql_{it}.py" for it in ("own_reads", "cached")],
    "dbio_commit/spark/read/*": ["tests/integration/test_spark_read.py", "tests/integration/test_file_index.py"],
    "dbio_commit/spark/rewrite/compaction.py": ["tests/integration/test_compaction_spark.py"],
    "dbio_commit/spark/rewrite/frame.py": [
        "tests/integration/test_spark_write.py",
        "tests/integration/test_file_sizes.py",
    ],
    "dbio_commit/spark/rewrite/*": [
        "tests/integration/test_spark_rewrite.py",
        "tests/integration/test_spark_merge.py",
        "tests/integration/test_merges_killed.py",
    ],
    "dbio_commit/spark/session/hadoop/*": ["tests/unit/spark/session/test_hadoop.py"],
    "dbio_commit/spark/session/*": ["tests/integration/test_bridge.py", "tests/integration/test_session_settings.py"],
    "dbio_commit/spark/transfer/*": [
        "tests/integration/test_packed_rows.py",
        "tests/integration/test_packed_columns.py",
    ],
    "dbio_commit/spark/sql/*": [
        "tests/integration/test_spark_name_resolution.py",
        "tests/integration/test_spark_where.py",
    ],
    "dbio_commit/spark/vacuum.py": ["tests/integration/test_vacuum_spark.py"],
    "dbio_commit/spark/write/constraints.py": ["tests/integration/test_spark_constraints.py"],
    "dbio_commit/spark/write/*": ["tests/integration/test_spark_write.py", "tests/integration/test_spark_failures.py"],
    "dbio_commit/spark/*": ["tests/integration/test_datasource.py", "tests/integration/test_spark_catalog.py"],
    "dbio_commit/store/*": ["tests/contract"],
    "dbio_commit/joint.py": ["tests/unit/commit/test_joint.py", "tests/integration/test_joint.py"],
    "dbio_commit/table.py": ["tests/unit/test_api.py", "tests/unit/test_wrong_arguments.py", "tests/unit/maintenance"],
    "dbio_commit/testing.py": ["tests/contract"],
    "dbio_commit/maintenance/compact/*": ["tests/unit/maintenance/compact/test_run.py"],
    "dbio_commit/maintenance/publish/*": [
        "tests/unit/maintenance/publish",
        "tests/integration/test_publish_delta.py",
        "tests/integration/test_publish_spark.py",
    ],
    "dbio_commit/maintenance/report/*": ["tests/unit/maintenance/report/test_page.py"],
    "dbio_commit/maintenance/vacuum/*": ["tests/unit/maintenance/vacuum", "tests/integration/test_vacuum_stores.py"],
    "dbio_commit/maintenance/*": ["tests/unit/maintenance", "tests/unit/cli"],
    "vacuum/*": ["tests/unit/vacuum", "tests/integration/test_vacuum_service.py"],
}
"""Where modules without a namesake are tested; the first pattern that matches counts."""


def modules() -> Iterator[Path]:
    """All modules of the product, by room, relative to the root of the checkout."""
    for folder in ("dbio_commit", "vacuum"):
        paths = (ROOT / folder).rglob("*.py")
        yield from sorted((path.relative_to(ROOT) for path in paths), key=lambda path: (path.parent, path))


def namesakes(module: Path) -> list[str]:
    """The test files of a module, relative to the root of the checkout."""
    folder = ROOT.joinpath("tests/unit", *module.parent.parts[module.parts[0] == "dbio_commit" :])
    name = f"test_{module.stem}"
    found = [path for path in folder.glob("test_*.py") if path.stem == name or path.stem.startswith(f"{name}_")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def tests_of(module: Path) -> list[str]:
    """Where a module is tested; empty if nothing says so."""
    found = namesakes(module)
    return found or next((tests for pattern, tests in ELSEWHERE.items() if fnmatch(module.as_posix(), pattern)), [])


def first_line(module: Path) -> str:
    """The first line of its docstring; empty if it has none."""
    text = ast.get_docstring(ast.parse((ROOT / module).read_text())) or ""
    return text.partition("\n")[0]


def page() -> str:
    """The map."""
    lines = [
        "# Map of the modules",
        "",
        "The last column names the tests of a module. How the modules work together is in",
        "[ARCHITECTURE.md](ARCHITECTURE.md).",
    ]
    room = None
    for module in modules():
        if module.parent != room:
            room = module.parent
            lines += ["", f"## {room.as_posix()}/", ""]
            if about := first_line(room / "__init__.py"):
                lines += [about, ""]
            lines += ["| module | | tests |", "|---|---|---|"]
        if module.name == "__init__.py":
            continue
        tests = ", ".join(f"`{it.removeprefix('tests/')}`" for it in tests_of(module))
        lines.append(f"| `{module.name}` | {first_line(module).replace('|', chr(92) + '|')} | {tests} |")
    return "\n".join(lines) + "\n"
