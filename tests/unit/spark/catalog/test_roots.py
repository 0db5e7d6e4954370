"""Which path a name of SQL means."""

from pathlib import Path
from typing import Any

import pytest

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.spark.catalog.roots import named_roots, path_of, paths_of

ROOTS = {"lake": "s3a://bucket/lake", "disk": "/data/"}


def test_a_root_without_a_name_has_that_of_its_last_directory_or_of_its_bucket() -> None:
    assert named_roots(["s3a://bucket/a/lake/", "gs://bucket", Path("/data/x")]) == {
        "lake": "s3a://bucket/a/lake/",
        "bucket": "gs://bucket",
        "x": "/data/x",
    }
    assert named_roots("s3://b/lake") == {"lake": "s3://b/lake"}
    assert named_roots({"mine": "s3://b/lake"}) == {"mine": "s3://b/lake"}
    assert named_roots(()) == {}


def test_a_relative_root_on_a_disk_is_kept_as_the_place_that_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert named_roots(["lake", "./lake"]) == {"lake": str(tmp_path / "lake")}


@pytest.mark.parametrize("roots", [{"": "/x"}, {"a/b": "/x"}, {1: "/x"}, ["/1/x", "/2/x"], 5, None], ids=str)
def test_names_that_sql_cannot_use_and_names_of_two_roots_are_refused(roots: Any) -> None:
    with pytest.raises(InvalidInputError, match="give roots as a dict"):
        named_roots(roots)


def test_paths_are_those_of_all_roots() -> None:
    assert paths_of("/x") == ["/x"]
    assert paths_of({"a": "/x", "b": Path("/y")}) == ["/x", Path("/y")]
    assert paths_of(["/x"]) == ["/x"]


@pytest.mark.parametrize(
    ("parts", "path"),
    [
        (["/lake/events"], "/lake/events"),
        (["s3://bucket/lake/events"], "s3://bucket/lake/events"),
        (["lake", "events"], "s3a://bucket/lake/events"),
        (["disk", "a", "b c"], "/data/a/b c"),
        (["events"], None),
        (["other", "events"], None),
    ],
)
def test_a_name_is_a_path_or_lies_below_a_root(parts: list[str], path: str | None) -> None:
    assert path_of(ROOTS, parts) == path


@pytest.mark.parametrize("part", ["", ".", "..", "a/b", "/etc"])
def test_no_part_of_a_name_leads_out_of_its_root(part: str) -> None:
    with pytest.raises(InvalidInputError, match="no name of a directory"):
        path_of(ROOTS, ["lake", part, "x"])
