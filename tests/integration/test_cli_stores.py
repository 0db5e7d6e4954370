"""The command line on S3, Azure and Google Cloud, as processes that find their credentials in the environment."""

import json
import os
import subprocess
from collections.abc import Mapping
from typing import Any

import fsspec
import pytest

from dbio_commit import Table, Transaction, TransactionAbortedError
from dbio_commit.protocol import names
from tests.command_line import forked
from tests.conftest import Root
from tests.servers import AzureServer, Fault, GcsServer, S3Server, Server


class Place:
    """A fresh table on a server, and the command line with that server's environment."""

    def __init__(self, root: Root, server: Server) -> None:
        self.root, self.server = root, server
        self.table = Table(*root)

    def begin(self, size: int) -> Transaction:
        transaction = self.table.begin(partition_by=["day"])
        transaction.inspector = None  # no Parquet
        with fsspec.open(transaction.new_file(partition={"day": "1"}), "wb", **self.root.storage_options) as file:
            file.write(b"x" * size)
        return transaction

    def dbio(self, *args: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "AZURE_", "GOOGLE_"))}
        given = {"AWS_EC2_METADATA_DISABLED": "true"} | dict(self.server.env if env is None else env)
        return forked(*args, env=kept | given)

    def dbio_json(self, *args: str) -> Any:
        result = self.dbio(*args, "--json")
        assert result.stderr == ""
        return json.loads(result.stdout)


@pytest.fixture
def s3(s3_root: Root, s3_server: S3Server) -> Place:
    return Place(s3_root, s3_server)


@pytest.fixture
def azure(azure_root: Root, azure_server: AzureServer) -> Place:
    return Place(azure_root, azure_server)


@pytest.fixture
def gcs(gcs_root: Root, gcs_server: GcsServer) -> Place:
    return Place(gcs_root, gcs_server)


@pytest.fixture(params=["s3", "azure", "gcs"])
def place(request: pytest.FixtureRequest) -> Place:
    place: Place = request.getfixturevalue(request.param)
    return place


def assert_one_message(result: subprocess.CompletedProcess[str], *secrets: str) -> None:
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("dbio: ")
    assert len(result.stderr.splitlines()) == 1
    for secret in secrets:
        assert secret not in result.stderr


@pytest.mark.long_for("azure", "gcs")
def test_all_commands_work_with_the_credentials_of_the_environment(place: Place) -> None:
    committed = place.begin(10)
    committed.commit()
    pending = place.begin(5)
    url = place.root.url

    (file,) = place.dbio_json("files", url)["files"]
    assert (file["tid"], file["size"], file["url"]) == (committed.tid, 10, f"{url}/{file['path']}")
    assert [commit["tid"] for commit in place.dbio_json("log", url)["commits"]] == [committed.tid]
    assert place.dbio_json("show", url, pending.tid)["total"] == {"files": 1, "size": 5}
    assert [found["tid"] for found in place.dbio_json("check", url)["pending"]] == [pending.tid]

    aborted = place.dbio("abort", url, pending.tid)

    assert (aborted.returncode, aborted.stderr) == (0, "")
    with pytest.raises(TransactionAbortedError):
        pending.commit()
    assert place.dbio_json("show", url, pending.tid)["state"] == "aborted"
    assert place.dbio("check", url).stdout.splitlines()[-1].startswith("Nothing is wrong")


def test_check_finds_a_file_that_is_missing(place: Place) -> None:
    place.begin(10).commit()
    (path,) = (file.path for file in place.table.snapshot().files)
    place.table.store.delete_many([path])

    result = place.dbio("check", place.root.url)

    assert (result.returncode, result.stderr) == (1, "")
    assert path in result.stdout
    assert place.dbio_json("check", place.root.url)["missing"] == {"files": 1, "size": 10, "paths": [path]}


def test_as_of_the_time_in_the_log_includes_that_commit(place: Place) -> None:
    committed = place.begin(10)
    committed.commit()
    (commit,) = place.dbio_json("log", place.root.url)["commits"]
    shown = place.dbio_json("files", place.root.url, "--as-of", commit["time"])
    assert [file["tid"] for file in shown["files"]] == [committed.tid]


@pytest.mark.parametrize("command", ["files", "check"])
def test_a_table_that_is_not_there_is_one_message(place: Place, command: str) -> None:
    result = place.dbio(command, place.root.url)
    assert_one_message(result)
    assert "there is no table" in result.stderr


def test_a_bucket_or_container_that_is_not_there_is_one_message(place: Place) -> None:
    result = place.dbio("files", place.root.url.replace("://tables/", "://nowhere/"))
    assert_one_message(result)
    assert "://nowhere/" in result.stderr


@pytest.mark.parametrize("place", ["s3", "azure"], indirect=True)  # gcsfs would ask Google itself, as nobody
def test_no_credentials_is_one_message(place: Place) -> None:
    result = place.dbio("files", place.root.url, env={})
    assert_one_message(result)
    assert "give" in result.stderr


def test_a_wrong_key_is_one_message_that_does_not_show_it(azure: Place) -> None:
    azure.begin(10).commit()
    wrong = "d3JvbmcgYnV0IHdlbGwtZm9ybWVkIGtleQ=="
    server = azure.server
    assert isinstance(server, AzureServer)
    connection = server.connection_string.replace(server.account_key, wrong)

    result = azure.dbio("files", azure.root.url, env={"AZURE_STORAGE_CONNECTION_STRING": connection})

    assert_one_message(result, wrong, server.account_key)
    assert "credentials" in result.stderr


def test_a_connection_string_that_is_none_is_one_message_that_does_not_show_it(azure: Place) -> None:
    broken = "AccountKey=c2VjcmV0IHNlY3JldA==;nonsense"
    result = azure.dbio("files", azure.root.url, env={"AZURE_STORAGE_CONNECTION_STRING": broken})
    assert_one_message(result, broken, "c2VjcmV0IHNlY3JldA")


def test_credentials_that_the_service_refuses_are_one_message_that_does_not_show_them(s3: Place) -> None:
    s3.begin(10).commit()
    s3.server.inject(Fault(method="GET", path=".", kind="403", times=100))
    try:
        result = s3.dbio("files", s3.root.url)
        document = s3.dbio_json("files", s3.root.url)
    finally:
        s3.server.reset()
    assert_one_message(result, s3.server.env["AWS_SECRET_ACCESS_KEY"])
    assert "credentials" in result.stderr
    assert document["error"] == "AccessDeniedError"


@pytest.mark.long_for("gcs")
def test_abort_without_the_permission_to_write_is_one_message_and_aborts_nothing(place: Place) -> None:
    pending = place.begin(5)
    method = "POST" if isinstance(place.server, GcsServer) else "PUT"
    place.server.inject(Fault(method=method, path=names.committed(pending.tid), kind="403", times=100))
    try:
        assert_one_message(place.dbio("abort", place.root.url, pending.tid))
    finally:
        place.server.reset()
    assert place.dbio_json("show", place.root.url, pending.tid)["state"] == "pending"
