"""Stores that keep versions of what is deleted: vacuum frees nothing there by itself, and says so."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest

from dbio_commit import Table
from dbio_commit.cli.check import check_json, print_check
from dbio_commit.cli.vacuum import print_vacuum, vacuum_json
from dbio_commit.store import Store
from dbio_commit.store.azure import AzureStore
from tests.contract.places import Place
from tests.later import vacuum_later
from tests.servers import Fault, S3Server, Server
from tests.writers import write
from vacuum import VacuumOptions, VacuumReport

pytestmark = pytest.mark.server


@pytest.fixture
def versioned(s3: Place, s3_server: S3Server) -> Table:
    """A table in a bucket with versioning."""
    bucket = f"versions-{uuid4().hex[:12]}"
    client = s3_server.client()
    client.create_bucket(Bucket=bucket)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    s3_server.reset()
    return Table(f"s3://{bucket}/table", s3.storage_options)


def vacuumed(table: Table, **options: Any) -> VacuumReport:
    return vacuum_later(table, VacuumOptions(), by=timedelta(days=3), **options)


def asked(server: Server) -> int:
    return sum("versioning" in request.query for request in server.requests())


def test_check_and_vacuum_say_that_a_bucket_keeps_versions(
    versioned: Table, s3_server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    write(versioned)
    write(versioned, "overwrite")
    s3_server.reset()
    report = versioned.check()
    assert asked(s3_server) == 1
    assert report.keeps_versions
    assert report.ok
    assert check_json(report)["keeps_versions"] is True
    for dry_run in (True, False):
        s3_server.reset()
        done = vacuumed(versioned, dry_run=dry_run)
        assert asked(s3_server) == 1
        assert done.keeps_versions
        assert done.ok
        assert done.warnings == []
        assert vacuum_json(done)["keeps_versions"] is True
        print_vacuum(done)
    print_check(report)
    told = capsys.readouterr()
    assert (told.out + told.err).count("until a lifecycle rule") == 3
    versions = s3_server.client().list_object_versions(Bucket=versioned.url.split("/")[2])
    hidden = {marker["Key"].removeprefix("table/") for marker in versions["DeleteMarkers"]}
    assert hidden >= {deletion.path for deletion in done.deleted}  # which is why


def test_a_vacuum_that_deletes_nothing_asks_nothing(versioned: Table, s3_server: S3Server) -> None:
    write(versioned)
    s3_server.reset()
    assert not vacuumed(versioned).keeps_versions
    assert asked(s3_server) == 0


def test_writers_and_readers_ask_nothing(versioned: Table, s3_server: S3Server) -> None:
    write(versioned)
    versioned.snapshot()
    assert asked(s3_server) == 0


@pytest.mark.parametrize("status", [None, "Suspended"])
def test_a_bucket_that_keeps_none_is_not_said_to(s3: Place, s3_server: S3Server, status: str | None) -> None:
    bucket = f"plain-{uuid4().hex[:12]}"
    client = s3_server.client()
    client.create_bucket(Bucket=bucket)
    if status:
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})
    table = Table(f"s3://{bucket}/table", s3.storage_options)
    write(table)
    assert not table.check().keeps_versions


@pytest.mark.parametrize("kind", ["403", "501"])
def test_who_is_not_told_says_nothing(versioned: Table, s3_server: S3Server, kind: Any) -> None:
    write(versioned)
    s3_server.inject(Fault(method="GET", path=r"\?versioning", kind=kind, times=100))
    report = versioned.check()
    assert not report.keeps_versions
    assert report.ok


@pytest.mark.parametrize(("version", "keeps"), [("2026-11-20T10:56:09.1234567Z", True), (None, False)])
def test_on_azure_the_descriptor_has_a_version_where_versions_are_kept(
    azure: Place, version: str | None, keeps: bool
) -> None:
    table = Table(azure.url, azure.storage_options)
    write(table)

    async def properties() -> Any:
        return SimpleNamespace(version_id=version)

    store = table.store
    assert isinstance(store, AzureStore)
    with patch.object(AzureStore, "_blob", lambda *_: SimpleNamespace(get_blob_properties=properties)):
        assert store.keeps_versions() is keeps


def test_a_place_without_a_descriptor_tells_nothing(store: Store) -> None:
    assert store.keeps_versions() is False
