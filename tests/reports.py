"""What the tests of the page about tables' health share: a table with a past, and a page as a parser sees it."""

import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from html.parser import HTMLParser

from dbio_commit import Table
from dbio_commit.protocol.markers.commit import Operation
from dbio_commit.testing import ManualClock, MemoryStore
from tests.writers import stage

HOSTILE = "\"'><script>alert(1)</script><img src=//evil.example onerror=alert(1)>{{7*7}}&lt;\u202e\x1b[2J\x00"
"""A name that tries to be markup, a template, an attribute's end, and to steer whoever shows it."""


def busy_table(*, days: int = 30, url: str = "memory://lake/orders", seed: int = 7) -> Table:
    """A month of commits of every operation, with garbage, a transaction that died and one that is at work."""
    chance, clock = random.Random(seed), ManualClock()
    table = Table.over(MemoryStore(clock, url=url), clock)
    for number in range(days * 6):
        clock.advance(timedelta(hours=4))
        operation: Operation = (
            "append" if chance.random() < 0.8 else "overwrite_partitions" if number > 20 else "overwrite"
        )
        app = ("stream-eu/orders", number) if operation == "append" else None
        transaction = table.begin(operation, partition_by=["day"], app=app)
        for _ in range(chance.randint(1, 3)):
            day = {"day": f"2026-11-{chance.randint(1, 28):02d}"}
            stage(table, transaction, bytes(int(chance.lognormvariate(9, 1.6))), day)
        if chance.random() < 0.06:
            transaction.abort()
        else:
            transaction.commit()
    dead = table.begin(partition_by=["day"])
    stage(table, dead, bytes(30_000), {"day": "2026-11-01"})
    clock.advance(timedelta(days=3))
    rewrite = table.begin("rewrite", partition_by=["day"])
    rewrite.remove([file.path for file in table.snapshot().files[:5]])
    stage(table, rewrite, bytes(200_000), {"day": "2026-11-01"})
    rewrite.commit()
    stage(table, table.begin(partition_by=["day"]), bytes(10_000), {"day": "2026-11-02"})
    clock.advance(timedelta(minutes=20))
    return table


class Page(HTMLParser):
    """A page taken apart. Fails on what is not closed in the order in which it was opened."""

    _VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})
    _SHAPES = frozenset({"line", "rect"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, Mapping[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self._VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        assert tag in self._SHAPES, "HTML closes no other element so"
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """As it is read, with single spaces."""
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[Mapping[str, str | None]]:
        """The attributes of each."""
        return [attributes for name, attributes in self.tags if name == tag]
