"""What `make bench` writes: bench/RESULTS.md, a section for each case. What is measured, and how, is in the cases."""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from math import log2
from pathlib import Path

PATH = Path(__file__).with_name("RESULTS.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A number that must not be exceeded."""

    what: str
    found: float
    at_most: float
    unit: str

    def __str__(self) -> str:
        verdict = "met" if self.found <= self.at_most else "NOT met"
        return f"- **{verdict}**: {self.what}: {_short(self.found)} {self.unit} (at most {_short(self.at_most)})"


def _short(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The results of one case. `how` says how they were measured, `tables` are Markdown."""

    title: str
    how: str
    tables: Sequence[str]
    targets: Sequence[Target]


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; the first column is text, the others are numbers or short texts."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def growth(unit: str, rows: Iterable[tuple[str, str, float]], *, least: float) -> str:
    """A picture of numbers that grow: a bar for each (what, size, number), one block longer with each doubling.

    Numbers up to `least` have one block.
    """
    each = [*rows]
    wide, wider = max(len(what) for what, *_ in each), max(len(size) for _, size, _ in each)
    lines = [f"{unit}; each block doubles the number"]
    for (what, size, number), before in zip(each, ["", *(what for what, *_ in each)], strict=False):
        bar = "█" * (1 + max(0, round(log2(max(number, least) / least))))
        lines.append(f"{what if what != before else '':{wide}}  {size:>{wider}}  {bar} {number:.3g}")
    return "\n".join(["```text", *lines, "```"])


def update(name: str, section: Section, *, order: Sequence[str], setting: str) -> None:
    """Puts the case's section in its place in the file; those of other versions or scales are dropped.

    A section of another machine than the one in the file's head names its machine.
    """
    old = PATH.read_text() if PATH.exists() else ""
    machine, _, rest = setting.partition("\n")
    sections: dict[str, str] = {}
    if head := re.search(rf"^(- Machine: .*)\n{re.escape(rest)}$", old, re.M):
        sections = dict(re.findall(r"^## (\S+): (.*?)(?=^## |\Z)", old, re.M | re.S))
    first = head[1] if head else machine
    sections[name] = _format(section, on=machine if machine != first else "")
    body = "\n\n".join(f"## {case}: {sections[case].rstrip()}" for case in order if case in sections)
    targets = "\n".join(re.findall(r"^- \*\*(?:NOT )?met\*\*: .*$", body, re.M))
    PATH.write_text(f"# Benchmark results\n\n{_INTRODUCTION}\n\n{first}\n{rest}\n\n{targets}\n\n{body}\n")


_INTRODUCTION = """\
`make bench` writes this file. Everything in a table was measured side by side in one run: the ways take turns, round by
round, after one round that is not counted. Times are in seconds: the median of all rounds, the minimum and the maximum.
A ratio compares two medians; below 1, the way is faster. Parquet is compressed by snappy everywhere."""


def _format(section: Section, *, on: str) -> str:
    measured = f"_Measured {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, dbio_commit at {_commit()}, load average before: "
    measured += f"{LOAD_BEFORE:.1f}{on.replace('- Machine:', ', on')}._"
    targets = "\n".join(map(str, section.targets))
    return "\n\n".join([section.title, measured, section.how, *section.tables, targets])


LOAD_BEFORE = os.getloadavg()[0]


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=PATH.parent, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--", "../dbio_commit")
    return (git("rev-parse", "--short", "HEAD") or version("dbio-commit")) + (" with local changes" if changed else "")


def describe_setting(*, scale: float, rounds: int, java: str) -> str:
    """The machine, and in further lines what two runs must share for their numbers to stand side by side."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    assert memory is not None
    names = ("pyspark", "pyarrow", "fsspec", "s3fs")
    versions = [f"Python {sys.version.split()[0]}", f"Java {java}", *(f"{name} {version(name)}" for name in names)]
    return (
        f"- Machine: {os.cpu_count()} cores of {cpu[1] if cpu else os.uname().machine}, "
        f"{int(memory[1]) / 2**20:.0f} GB of memory\n"
        f"- Versions: {', '.join(versions)}\n"
        f"- Data: TPC-H at scale {scale:g}; {rounds} counted rounds, where not more are said\n"
        "- Spark: `local[2]`, 4 GB of Java heap"
    )
