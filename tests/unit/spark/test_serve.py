"""`dbio serve` before Spark starts, and when Spark ends: what is refused, and what is warned of."""

import signal
import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest

import dbio_commit as dbio
from dbio_commit.cli import serve
from dbio_commit.cli.serve import pairs, run_server
from dbio_commit.spark import serve as started
from dbio_commit.spark.serve import ServeOptions, Server


def options(**changes: Any) -> ServeOptions:
    given: dict[str, Any] = {"host": "127.0.0.1", "port": 15002, "thrift": False, "roots": {}, "conf": {}}
    return ServeOptions(**(given | changes))


@pytest.mark.parametrize(
    ("changes", "is_open"),
    [
        ({}, False),
        ({"host": "localhost"}, False),
        ({"host": "::1"}, False),
        ({"host": "0.0.0.0"}, True),
        ({"host": "lake.example"}, True),
        ({"host": "::", "thrift": True}, True),
        ({"host": "::", "thrift": True, "conf": {"spark.hadoop.hive.server2.authentication": "NOSASL"}}, True),
        ({"host": "::", "thrift": True, "conf": {"spark.hadoop.hive.server2.authentication": "LDAP"}}, False),
        ({"host": "::", "thrift": True, "conf": {"spark.hive.server2.authentication": "LDAP"}}, False),
        (
            {
                "host": "::",
                "thrift": True,
                "conf": {
                    "spark.hive.server2.authentication": "NONE",
                    "spark.hadoop.hive.server2.authentication": "LDAP",
                },
            },
            True,
        ),
        ({"host": "0.0.0.0", "conf": {"spark.connect.authenticate.token": "x"}}, False),
    ],
)
def test_it_knows_whether_anyone_may_connect_from_elsewhere(changes: dict[str, Any], is_open: bool) -> None:
    assert options(**changes).is_open is is_open


def test_a_token_in_the_environment_asks_who_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", "x")
    assert not options(host="0.0.0.0").is_open
    assert options(host="0.0.0.0", thrift=True).is_open


@pytest.mark.parametrize(
    "name",
    [
        *("HIVE_SERVER2_THRIFT_BIND_HOST", "HIVE_SERVER2_THRIFT_PORT"),
        *("HIVE_SERVER2_TRANSPORT_MODE", "HIVE_SERVER2_THRIFT_HTTP_PORT"),
    ],
)
def test_a_variable_by_which_hive_would_listen_elsewhere_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "0.0.0.0")
    with pytest.raises(dbio.InvalidInputError, match=f"unset {name}"):
        options(thrift=True).check()


@pytest.mark.parametrize("start", ["spark.hadoop.hive.server2.", "spark.hive.server2."])
def test_settings_by_which_hive_would_listen_elsewhere_are_overruled_or_refused(start: str) -> None:
    elsewhere = {f"{start}thrift.bind.host": "0.0.0.0", f"{start}thrift.port": "1", "spark.master": "local[1]"}
    settings = options(thrift=True, conf=elsewhere).settings
    assert settings[f"{start}thrift.bind.host"] == "127.0.0.1"
    assert settings[f"{start}thrift.port"] == "15002"
    assert settings["spark.master"] == "local[1]"
    with pytest.raises(dbio.InvalidInputError, match="has no Thrift over HTTP"):
        options(thrift=True, conf={f"{start}transport.mode": "http"}).check()


def test_settings_by_which_spark_connect_would_listen_elsewhere_are_overruled() -> None:
    elsewhere = {"binding.address": "0.0.0.0", "binding.port": "1", "port.maxRetries": "9"}
    settings = options(conf={f"spark.connect.grpc.{name}": text for name, text in elsewhere.items()}).settings
    assert [settings[f"spark.connect.grpc.{name}"] for name in elsewhere] == ["127.0.0.1", "15002", "0"]


def test_it_is_refused_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(dbio.InvalidInputError, match=r"cannot listen on '127\.0\.0\.1', port .*another --host"):
            options(thrift=True, port=other.getsockname()[1]).check()
    with pytest.raises(dbio.InvalidInputError, match="has the name 'a/b', which SQL cannot use"):
        options(thrift=True, roots={"a/b": "/lake"}).check()
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    with pytest.raises(dbio.InvalidInputError, match="unset SPARK_REMOTE"):
        options(thrift=True).check()
    monkeypatch.setattr(started, "SERVES_CONNECT", False)
    with pytest.raises(dbio.UnsupportedStoreError, match=r"listen on all addresses.*use --thrift"):
        options().check()


def test_names_and_values_are_read() -> None:
    assert pairs(["lake=s3://bucket/a=b", "x=/y"], "--root") == {"lake": "s3://bucket/a=b", "x": "/y"}
    for wrong in (["/lake"], ["=x"], ["a="], ["a=1", "a=2"]):
        with pytest.raises(dbio.InvalidInputError, match=r"--root .* is not NAME=VALUE"):
            pairs(wrong, "--root")


@pytest.fixture
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_it_warns_and_ends_with_an_error_if_spark_has_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Gone:
        stopped = False

        def is_running(self) -> bool:
            return False

        def stop(self) -> None:
            self.stopped = True

    monkeypatch.setattr(serve, "_LOOK_S", 0)
    server = Gone()
    with pytest.raises(dbio.StoreError, match="Spark has ended"):
        run_server(cast(Server, server), options(host="::", roots={"lake": "/lake"}))
    assert server.stopped
    shown = capsys.readouterr()
    assert shown.out == "listening on sc://[::]:15002, with the roots lake; Ctrl-C ends it\n"
    assert "warning: anyone who can connect to sc://[::]:15002 may do what this process may" in shown.err
