"""Azure keeps the names of directories without the dots at their ends: a store in memory that does so, too.

Rules: PROTOCOL.md 6.3.
"""

from datetime import timedelta
from typing import Any

import pytest

from dbio_commit import InvalidInputError, Table
from dbio_commit.protocol import names
from dbio_commit.store import parse_location
from dbio_commit.store.azure import AzureStore
from dbio_commit.testing import ManualClock, MemoryStore
from tests.garbage import AT_ONCE, DAY
from tests.writers import contents, write_days
from vacuum import vacuum_table

AZURE = AzureStore(parse_location("az://lake/table"), {})


def cut(path: str) -> str:
    return "/".join(component.rstrip(".") for component in path.split("/"))


class _Objects(dict[str, Any]):
    """By names as the service keeps them."""

    def __getitem__(self, path: str) -> Any:
        return super().__getitem__(cut(path))

    def __setitem__(self, path: str, content: Any) -> None:
        super().__setitem__(cut(path), content)

    def __contains__(self, path: object) -> bool:
        return super().__contains__(cut(str(path)))

    def pop(self, path: str, *default: Any) -> Any:
        return super().pop(cut(path), *default)


class Cutting(MemoryStore):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.objects = _Objects()
        self.may_respell = AZURE.may_respell  # type: ignore[method-assign]
        self.is_same = AZURE.is_same  # type: ignore[method-assign]


@pytest.fixture
def cutting(clock: ManualClock) -> Table:
    return Table.over(Cutting(clock), clock)


def test_vacuum_keeps_the_live_files_of_such_partitions_and_deletes_what_was_removed(
    cutting: Table, clock: ManualClock
) -> None:
    write_days(cutting, "append", **{"Acme Inc.": b"first", "acme inc.": b"other", "Other": b"plain"})
    clock.advance(timedelta(hours=1))
    write_days(cutting, "overwrite_partitions", **{"Acme Inc.": b"second"})
    assert {names.split(path)[0] for path in cutting.store.objects} >= {"day=Acme Inc"}  # type: ignore[attr-defined]
    for days in (3, 8, 8):
        clock.advance(days * DAY)
        report = vacuum_table(cutting, AT_ONCE)
        assert not report.failed
        assert contents(cutting) == [b"other", b"plain", b"second"]
    files = [body for path, (body, _) in cutting.store.objects.items() if names.is_data_file(path)]  # type: ignore[attr-defined]
    assert sorted(files) == [b"other", b"plain", b"second"], "the first one is garbage, and goes"


@pytest.mark.parametrize("directory", ["company=Acme Inc.", "a=1./b=2", "a=...", "x=1/y=.."])
def test_azure_refuses_to_commit_into_a_directory_whose_name_it_would_cut(directory: str) -> None:
    with pytest.raises(InvalidInputError, match="ends with a dot, which Azure cuts off"):
        AZURE.check_spelling(["company=Other", directory])


def test_azure_takes_all_other_names() -> None:
    AZURE.check_spelling(["company=Other", "a=1.5/b=.hidden", "a=..b", ""])
    assert AZURE.is_same("a=1./x", "a=1/x")
    assert not AZURE.is_same("a=1.5/x", "a=15/x")


@pytest.mark.parametrize("url", ["az://lake/table.", "abfss://lake@account.dfs.core.windows.net/a./b"])
def test_a_root_that_ends_with_a_dot_is_refused_with_the_reason(url: str) -> None:
    with pytest.raises(InvalidInputError, match="which Azure cuts off"):
        parse_location(url)


def test_other_stores_keep_dots() -> None:
    assert parse_location("s3://lake/table.").prefix == "table."
