"""What we make of a session's Hadoop settings. No session is needed."""

from typing import Any

import pytest

from dbio_commit.spark.session import storage_options
from dbio_commit.store import parse_location

HOST = "account.dfs.core.windows.net"
AZURE = f"abfss://lake@{HOST}/table"


@pytest.mark.parametrize(
    ("url", "settings", "options"),
    [
        ("s3://lake/t", {}, {}),
        ("s3://lake/t", {"fs.s3a.access.key": "K", "fs.s3a.secret.key": "S"}, {"key": "K", "secret": "S"}),
        ("s3a://lake/t", {"fs.s3a.session.token": "T"}, {"token": "T"}),
        (
            "s3://lake/t",
            {"fs.s3a.access.key": "K", "fs.s3a.bucket.lake.access.key": "B", "fs.s3a.bucket.other.secret.key": "S"},
            {"key": "B"},
        ),
        ("s3://lake/t", {"fs.s3a.endpoint": "http://127.0.0.1:9"}, {"endpoint_url": "http://127.0.0.1:9"}),
        ("s3://lake/t", {"fs.s3a.endpoint": "minio:9"}, {"endpoint_url": "https://minio:9"}),
        (
            "s3://lake/t",
            {"fs.s3a.endpoint": "minio:9", "fs.s3a.connection.ssl.enabled": "false"},
            {"endpoint_url": "http://minio:9"},
        ),
        ("s3://lake/t", {"fs.s3a.endpoint.region": "eu-west-1"}, {"client_kwargs": {"region_name": "eu-west-1"}}),
        (
            "s3://lake/t",
            {"fs.s3a.path.style.access": "true"},
            {"config_kwargs": {"s3": {"addressing_style": "path"}}},
        ),
        ("s3://lake/t", {"fs.s3a.path.style.access": "false", f"fs.azure.account.key.{HOST}": "A"}, {}),
        (AZURE, {f"fs.azure.account.key.{HOST}": "A"}, {"account_key": "A"}),
        (AZURE, {"fs.azure.account.key": "A"}, {"account_key": "A"}),
        (AZURE, {f"fs.azure.sas.fixed.token.{HOST}": "?sv=1"}, {"sas_token": "?sv=1"}),
        (AZURE, {"fs.azure.account.key.other.dfs.core.windows.net": "A", "fs.s3a.access.key": "K"}, {}),
        (
            AZURE,
            {
                f"fs.azure.account.oauth2.client.id.{HOST}": "I",
                f"fs.azure.account.oauth2.client.secret.{HOST}": "S",
                f"fs.azure.account.oauth2.client.endpoint.{HOST}": "https://login.microsoftonline.com/TENANT/oauth2/token",
            },
            {"client_id": "I", "client_secret": "S", "tenant_id": "TENANT"},
        ),
        ("az://lake/t", {"fs.azure.account.key": "A"}, {}),  # whose account it is, no one says
        ("/data/t", {"fs.s3a.access.key": "K"}, {}),
    ],
)
def test_the_sessions_settings_become_options_of_the_store(
    url: str, settings: dict[str, str], options: dict[str, Any]
) -> None:
    assert storage_options(parse_location(url), settings) == options
