"""What becomes of each setting of S3A, ABFS and Google's connector: honoured, refused by name, or named as ignored."""

import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.spark.session.hadoop import HadoopSettings, abfs, gcs, is_known, is_secret, narrow, s3a, translate
from dbio_commit.store import parse_location
from dbio_commit.store.azure import AzureStore

S3 = parse_location("s3://lake/t")
HOST = "account.dfs.core.windows.net"
AZURE = parse_location(f"abfss://lake@{HOST}/table")
GOOGLE = parse_location("gs://lake/t")
LOCAL = parse_location("/data/t")

KEYS = {"access.key": "K", "secret.key": "S"}
TEMPORARY = {**KEYS, "session.token": "T"}
HADOOP = "org.apache.hadoop.fs.s3a."
AWS = "software.amazon.awssdk.auth.credentials."
DEFAULT_PROVIDERS = (  # as core-default.xml has it
    f"\n    {HADOOP}TemporaryAWSCredentialsProvider,\n    {HADOOP}SimpleAWSCredentialsProvider,\n"
    f"    {AWS}EnvironmentVariableCredentialsProvider,\n    {HADOOP}auth.IAMInstanceCredentialsProvider\n  "
)
CONTEXT = "eyJhIjogIjEiLCAiYiI6ICIyPTMifQ=="
PROXY = {"proxy.host": "proxy", "proxy.port": "3128"}
ENCRYPTED = {"encryption.algorithm": "SSE-KMS", "encryption.key": "arn:key"}
ROLE = {**KEYS, "aws.credentials.provider": f"{HADOOP}auth.AssumedRoleCredentialProvider", "assumed.role.arn": "arn:r"}
OAUTH = {"account.auth.type": "OAuth"}
TOKENS = "org.apache.hadoop.fs.azurebfs.oauth2."
CLIENT = {"account.oauth2.client.id": "I", "account.oauth2.client.secret": "S"}
LOGIN = "https://login.microsoftonline.com/TENANT/oauth2/token"
OTHERS_EXCLUDED = {
    f"exclude_{name}_credential": True
    for name in ("environment", "shared_token_cache", "visual_studio_code", "cli", "powershell", "developer_cli")
}


def additional(**arguments: str) -> dict[str, Any]:
    return {"s3_additional_kwargs": arguments}


HONOURED_S3A: list[tuple[HadoopSettings, dict[str, Any]]] = [
    ({}, {}),
    # credentials
    (KEYS, {"key": "K", "secret": "S"}),
    (TEMPORARY, {"key": "K", "secret": "S", "token": "T"}),
    ({**TEMPORARY, "aws.credentials.provider": DEFAULT_PROVIDERS}, {"key": "K", "secret": "S", "token": "T"}),
    ({**KEYS, "aws.credentials.provider": DEFAULT_PROVIDERS}, {"key": "K", "secret": "S"}),
    ({"access.key": "K"}, {}),  # S3A too goes on to the next provider
    ({**TEMPORARY, "aws.credentials.provider": f"{HADOOP}SimpleAWSCredentialsProvider"}, {"key": "K", "secret": "S"}),
    ({**KEYS, "aws.credentials.provider": f"{AWS}EnvironmentVariableCredentialsProvider"}, {}),
    ({**KEYS, "aws.credentials.provider": f"{HADOOP}AnonymousAWSCredentialsProvider"}, {"anon": True}),
    ({"aws.credentials.provider": "com.amazonaws.auth.AnonymousAWSCredentials"}, {"anon": True}),
    (
        {"aws.credentials.provider": f"{HADOOP}auth.ProfileAWSCredentialsProvider", "auth.profile.name": "etl"},
        {"profile": "etl"},
    ),
    # the service
    ({"endpoint": "http://127.0.0.1:9"}, {"endpoint_url": "http://127.0.0.1:9"}),
    ({"endpoint": "minio:9"}, {"endpoint_url": "https://minio:9"}),
    ({"endpoint": "minio:9", "connection.ssl.enabled": "FALSE"}, {"endpoint_url": "http://minio:9"}),
    ({"endpoint": "minio:9", "connection.ssl.enabled": "True"}, {"endpoint_url": "https://minio:9"}),
    ({"connection.ssl.enabled": "false"}, {"use_ssl": False}),
    ({"endpoint": "s3.amazonaws.com"}, {}),  # where the bucket is, no endpoint is needed
    (
        {"endpoint": "s3.eu-west-1.amazonaws.com"},
        {"endpoint_url": "https://s3.eu-west-1.amazonaws.com", "client_kwargs": {"region_name": "eu-west-1"}},
    ),
    (
        {"endpoint": "https://vpce-1.s3.us-gov-west-1.vpce.amazonaws.com", "endpoint.region": "us-gov-west-1"},
        {
            "endpoint_url": "https://vpce-1.s3.us-gov-west-1.vpce.amazonaws.com",
            "client_kwargs": {"region_name": "us-gov-west-1"},
        },
    ),
    ({"endpoint.region": "eu-west-1"}, {"client_kwargs": {"region_name": "eu-west-1"}}),
    ({"endpoint.region": "sdk"}, {}),
    ({"endpoint.fips": "TRUE"}, {"config_kwargs": {"use_fips_endpoint": True}}),
    ({"endpoint.fips": "false"}, {}),
    ({"path.style.access": "True"}, {"config_kwargs": {"s3": {"addressing_style": "path"}}}),
    ({"path.style.access": " true\n"}, {"config_kwargs": {"s3": {"addressing_style": "path"}}}),
    ({"path.style.access": "false"}, {}),
    ({"requester.pays.enabled": "true"}, {"requester_pays": True, **additional(RequestPayer="requester")}),
    ({"requester.pays.enabled": "false"}, {}),
    (PROXY, {"config_kwargs": {"proxies": {"http": "http://proxy:3128", "https": "http://proxy:3128"}}}),
    (
        {
            "proxy.host": "proxy",
            "proxy.ssl.enabled": "True",
            "proxy.username": "me",
            "proxy.password": "p@ss/1",
            "path.style.access": "TRUE",
        },
        {
            "config_kwargs": {
                "proxies": dict.fromkeys(("http", "https"), "https://me:p%40ss%2F1@proxy:443"),
                "s3": {"addressing_style": "path"},
            }
        },
    ),
    # what is stored
    ({"encryption.algorithm": "AES256", "encryption.key": "x"}, additional(ServerSideEncryption="AES256")),
    ({"encryption.algorithm": "SSE-KMS"}, additional(ServerSideEncryption="aws:kms")),
    (ENCRYPTED, additional(ServerSideEncryption="aws:kms", SSEKMSKeyId="arn:key")),
    (
        {**ENCRYPTED, "encryption.algorithm": "dsse-kms", "encryption.context": "a=1, b=2=3"},
        additional(ServerSideEncryption="aws:kms:dsse", SSEKMSKeyId="arn:key", SSEKMSEncryptionContext=CONTEXT),
    ),
    (
        {"server-side-encryption-algorithm": "SSE-KMS", "server-side-encryption.key": "arn:old"},
        additional(ServerSideEncryption="aws:kms", SSEKMSKeyId="arn:old"),
    ),
    (
        {"encryption.algorithm": "SSE-KMS", "server-side-encryption-key": "arn:older"},
        additional(ServerSideEncryption="aws:kms", SSEKMSKeyId="arn:older"),
    ),
    ({"create.storage.class": "standard_ia"}, additional(StorageClass="STANDARD_IA")),
    ({"create.storage.class": "glacier_instant_retrieval"}, additional(StorageClass="GLACIER_IR")),
    ({"acl.default": "BucketOwnerFullControl"}, additional(ACL="bucket-owner-full-control")),
    ({"accesspoint.required": "false"}, {}),
    # what tunes Hadoop's own client
    ({"threads.max": "96", "committer.name": "magic", "fast.upload.buffer": "disk"}, {}),
]

HONOURED_ABFS: list[tuple[HadoopSettings, dict[str, Any]]] = [
    ({"account.key": "A"}, {"account_key": "A"}),
    ({"account.key": "A", "account.auth.type": "SharedKey"}, {"account_key": "A"}),
    ({"account.key": "A", "account.keyprovider": "org.apache.hadoop.fs.azurebfs.services.SimpleKeyProvider"},
     {"account_key": "A"}),
    ({"sas.fixed.token": "?sv=1"}, {"sas_token": "?sv=1"}),
    ({"sas.fixed.token": "sv=1", "account.key": "A", "account.auth.type": "SAS"}, {"sas_token": "sv=1"}),
    (CLIENT, {"client_id": "I", "client_secret": "S"}),
    (
        {**CLIENT, **OAUTH, "account.key": "A", "account.oauth.provider.type": f"{TOKENS}ClientCredsTokenProvider",
         "account.oauth2.client.endpoint": LOGIN},
        {"client_id": "I", "client_secret": "S", "tenant_id": "TENANT"},
    ),
    (
        {**OAUTH, "account.oauth.provider.type": f"{TOKENS}MsiTokenProvider", "account.oauth2.client.id": "I"},
        {"managed_identity_client_id": "I", "exclude_workload_identity_credential": True, **OTHERS_EXCLUDED},
    ),
    (
        {**OAUTH, "account.oauth.provider.type": f"{TOKENS}WorkloadIdentityTokenProvider",
         "account.oauth2.client.id": "I", "account.oauth2.msi.tenant": "T"},
        {"workload_identity_client_id": "I", "workload_identity_tenant_id": "T",
         "exclude_managed_identity_credential": True, **OTHERS_EXCLUDED},
    ),
]  # fmt: skip

ACCOUNT = {
    "auth.service.account.email": "etl@p.iam.gserviceaccount.com",
    "auth.service.account.private.key": "-----BEGIN PRIVATE KEY-----\\nQUJD\\n-----END PRIVATE KEY-----\\n",
}
ACCOUNT_TOKEN = {
    "type": "service_account",
    "client_email": "etl@p.iam.gserviceaccount.com",
    "private_key": "-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----\n",
    "private_key_id": "",
    "token_uri": "https://oauth2.googleapis.com/token",
}
USER = {"auth.client.id": "I", "auth.client.secret": "S", "auth.refresh.token": "R"}
USER_TOKEN = {"type": "authorized_user", "client_id": "I", "client_secret": "S", "refresh_token": "R"}
KEY_FILE = {"auth.service.account.json.keyfile": "/keys/etl.json"}
PAYS = {"requester.pays.mode": "CUSTOM", "requester.pays.buckets": "pond, lake", "project.id": "p"}

HONOURED_GCS: list[tuple[HadoopSettings, dict[str, Any]]] = [
    ({}, {}),
    # credentials
    (KEY_FILE, {"token": "/keys/etl.json"}),
    ({**KEY_FILE, "auth.service.account.enable": "true"}, {"token": "/keys/etl.json"}),
    ({**KEY_FILE, **ACCOUNT, "auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE"}, {"token": "/keys/etl.json"}),
    (ACCOUNT, {"token": ACCOUNT_TOKEN}),
    (
        {**ACCOUNT, "auth.service.account.private.key.id": "7", "token.server.url": "https://token.example"},
        {"token": {**ACCOUNT_TOKEN, "private_key_id": "7", "token_uri": "https://token.example"}},
    ),
    (USER, {"token": USER_TOKEN}),
    ({**KEY_FILE, **USER, "auth.type": "user_credentials"}, {"token": USER_TOKEN}),
    ({**KEY_FILE, "auth.type": "APPLICATION_DEFAULT"}, {"token": "google_default"}),
    ({"auth.type": "COMPUTE_ENGINE"}, {}),  # as core-default.xml has it
    ({**KEY_FILE, "auth.type": "COMPUTE_ENGINE"}, {"token": "/keys/etl.json"}),
    ({**KEY_FILE, "auth.type": "UNAUTHENTICATED"}, {"token": "anon"}),
    ({"auth.null.enable": "true"}, {"token": "anon"}),
    ({**KEY_FILE, "auth.null.enable": "true"}, {"token": "/keys/etl.json"}),
    ({"auth.null.enable": "false"}, {}),
    # the service
    ({"storage.root.url": "https://storage.googleapis.com/"}, {}),
    ({"storage.root.url": "http://127.0.0.1:4443/"}, {"endpoint_url": "http://127.0.0.1:4443"}),
    ({"storage.service.path": "/storage/v1/"}, {}),
    ({"project.id": "p"}, {}),  # it matters to who creates buckets
    ({"requester.pays.mode": "DISABLED", "project.id": "p"}, {}),
    ({"requester.pays.mode": "enabled", "project.id": "p"}, {"requester_pays": "p"}),
    ({"requester.pays.mode": "ENABLED", "project.id": "p", "requester.pays.project.id": "q"}, {"requester_pays": "q"}),
    (PAYS, {"requester_pays": "p"}),
    ({**PAYS, "requester.pays.buckets": "pond"}, {}),
    ({"proxy.address": "proxy:3128"}, {"session_kwargs": {"proxy": "http://proxy:3128"}}),
    (
        {"proxy.address": "https://proxy:3128", "proxy.username": "me", "proxy.password": "p@ss/1"},
        {"session_kwargs": {"proxy": "https://me:p%40ss%2F1@proxy:3128"}},
    ),
    # what tunes Hadoop's own client
    ({"outputstream.upload.chunk.size": "1", "http.max.retry": "3", "grpc.enable": "true"}, {}),
]

IGNORED_GCS: list[tuple[str, HadoopSettings]] = [
    ("auth.type", {"auth.type": "KERBEROS"}),
    ("auth.type", {"auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE"}),
    ("auth.type", {**KEY_FILE, "auth.type": "USER_CREDENTIALS"}),
    ("auth.access.token.provider", {"auth.type": "ACCESS_TOKEN_PROVIDER", "auth.access.token.provider": "com.Vault"}),
    ("auth.access.token.provider", {"auth.access.token.provider.impl": "com.acme.Vault"}),
    ("auth.service.account.keyfile", {"auth.service.account.keyfile": "/keys/etl.p12"}),
    (
        "auth.workload.identity.federation.credential.config.file",
        {
            "auth.type": "WORKLOAD_IDENTITY_FEDERATION_CREDENTIAL_CONFIG_FILE",
            "auth.workload.identity.federation.credential.config.file": "/etc/wif.json",
        },
    ),
    ("auth.impersonation.service.account", {**KEY_FILE, "auth.impersonation.service.account": "a@b"}),
    ("delegation.token.binding", {"delegation.token.binding": "x"}),
    ("requester.pays.mode", {"requester.pays.mode": "AUTO", "project.id": "p"}),
]

IGNORED_S3A: list[tuple[str, HadoopSettings]] = [
    ("aws.credentials.provider", {"aws.credentials.provider": "com.acme.Vault"}),
    (
        "aws.credentials.provider",
        {"aws.credentials.provider": f"{AWS}DefaultCredentialsProvider, {HADOOP}AnonymousAWSCredentialsProvider"},
    ),
    ("auth.profile.file", {"auth.profile.file": "/etc/aws"}),
    ("delegation.token.binding", {"delegation.token.binding": "x"}),
    ("access.grants.enabled", {"access.grants.enabled": "true"}),
    ("proxy.domain", {**PROXY, "proxy.domain": "CORP"}),
    ("proxy.workstation", {**PROXY, "proxy.workstation": "W"}),
    ("signing-algorithm", {"signing-algorithm": "S3SignerType"}),
    ("s3.signing-algorithm", {"s3.signing-algorithm": "S3SignerType"}),
    ("custom.signers", {"custom.signers": "Mine:com.acme.Signer"}),
    ("create.checksum.algorithm", {"create.checksum.algorithm": "SHA256"}),
]

IGNORED_ABFS: list[tuple[str, HadoopSettings]] = [
    ("account.auth.type", {"account.auth.type": "Custom"}),
    ("account.keyprovider", {"account.key": "encrypted", "account.keyprovider": "a.b.ShellDecryptionKeyProvider"}),
    ("sas.token.provider.type", {"account.auth.type": "SAS", "sas.token.provider.type": "com.acme.Sas"}),
    ("account.oauth.provider.type", {**OAUTH, "account.oauth.provider.type": f"{TOKENS}UserPasswordTokenProvider"}),
    (
        "account.oauth.provider.type",
        {**OAUTH, "account.oauth.provider.type": f"{TOKENS}RefreshTokenBasedTokenProvider"},
    ),
    (
        "account.oauth2.client.endpoint",
        {**CLIENT, "account.oauth2.client.endpoint": "https://login.microsoftonline.us/TENANT/oauth2/token"},
    ),
    (
        "account.oauth2.msi.endpoint",
        {
            **OAUTH,
            "account.oauth.provider.type": f"{TOKENS}MsiTokenProvider",
            "account.oauth2.msi.endpoint": "http://x",
        },
    ),
    (
        "account.oauth2.token.file",
        {
            **OAUTH,
            "account.oauth.provider.type": f"{TOKENS}WorkloadIdentityTokenProvider",
            "account.oauth2.token.file": "/t",
        },
    ),
]

REFUSED_S3A: list[tuple[str, HadoopSettings]] = [
    ("encryption.algorithm", {"encryption.algorithm": "SSE-C", "encryption.key": "c2VjcmV0c2VjcmV0"}),
    ("encryption.algorithm", {"encryption.algorithm": "CSE-KMS", "encryption.key": "arn:key"}),
    ("encryption.algorithm", {"encryption.algorithm": "CSE-CUSTOM"}),
    ("encryption.algorithm", {"server-side-encryption-algorithm": "ROT13"}),
    ("create.storage.class", {"create.storage.class": "deep_archive"}),
    ("acl.default", {"acl.default": "Everybody"}),
    ("object.content.encoding", {"object.content.encoding": "gzip"}),
    ("accesspoint.arn", {"accesspoint.arn": "arn:aws:s3:eu-west-1:1:accesspoint/p"}),
    ("accesspoint.required", {"accesspoint.required": "True"}),
    ("assumed.role.session.duration", {**ROLE, "assumed.role.session.duration": "an hour"}),
]

REFUSED_ABFS: list[tuple[str, HadoopSettings]] = [
    ("encryption.context.provider.type", {"encryption.context.provider.type": "com.acme.Context"}),
    ("encryption.encoded.client-provided-key", {"encryption.encoded.client-provided-key": "c2VjcmV0c2VjcmV0"}),
    ("encryption.encoded.client-provided-key", {"client-provided-encryption-key": "c2VjcmV0c2VjcmV0"}),
    ("encryption.encoded.client-provided-key-sha", {"encryption.encoded.client-provided-key-sha": "c2VjcmV0c2VjcmV0"}),
    ("encryption.scope", {"encryption.scope": "mine"}),
    ("account.oauth2.client.endpoint", {**CLIENT, "account.oauth2.client.endpoint": "login.microsoftonline.com"}),
]


REFUSED_GCS: list[tuple[str, HadoopSettings]] = [
    ("encryption.algorithm", {"encryption.algorithm": "AES256"}),
    ("encryption.key", {"encryption.key": "c2VjcmV0c2VjcmV0"}),
    ("encryption.key.hash", {"encryption.key.hash": "c2VjcmV0c2VjcmV0"}),
    ("storage.service.path", {"storage.service.path": "storage/v2/"}),
    ("requester.pays.mode", {"requester.pays.mode": "ENABLED"}),
]


def s3(settings: HadoopSettings) -> dict[str, str]:
    return {f"fs.s3a.{name}": value for name, value in settings.items()}


def google(settings: HadoopSettings, prefix: str = "fs.gs.") -> dict[str, str]:
    return {f"{prefix}{name}": value for name, value in settings.items()}


def azure(settings: HadoopSettings, owner: str = "") -> dict[str, str]:
    return {f"fs.azure.{name}{owner}": value for name, value in settings.items()}


@pytest.mark.parametrize(("settings", "options"), HONOURED_S3A)
def test_settings_of_s3a_become_options_of_s3fs(settings: HadoopSettings, options: dict[str, Any]) -> None:
    assert translate(S3, s3(settings)) == translate(S3, {}, options)
    assert not translate(S3, s3(settings)).ignored


@pytest.mark.parametrize("prefix", ["fs.gs.", "google.cloud."])
@pytest.mark.parametrize(("settings", "options"), HONOURED_GCS)
def test_settings_of_googles_connector_become_options_of_gcsfs(
    settings: HadoopSettings, options: dict[str, Any], prefix: str
) -> None:
    translation = translate(GOOGLE, google(settings, prefix))
    assert translation == translate(GOOGLE, {}, options)
    assert not translation.ignored


def test_of_two_names_of_a_setting_of_googles_the_newer_holds() -> None:
    settings = google({"auth.service.account.json.keyfile": "/old"}, "google.cloud.") | google(KEY_FILE)
    assert translate(GOOGLE, settings).options == {"token": "/keys/etl.json"}


@pytest.mark.parametrize(("name", "settings"), IGNORED_GCS)
def test_what_of_googles_is_not_honoured_and_changes_nothing_that_is_stored_is_named(
    name: str, settings: HadoopSettings
) -> None:
    (sentence,) = translate(GOOGLE, google(settings)).ignored
    assert f"fs.gs.{name}: " in sentence


@pytest.mark.parametrize(("name", "settings"), REFUSED_GCS)
def test_what_of_googles_would_change_what_is_stored_is_refused_by_name(name: str, settings: HadoopSettings) -> None:
    with pytest.raises(InvalidInputError, match=rf"fs\.gs\.{re.escape(name)}\b") as caught:
        translate(GOOGLE, google(settings))
    assert "c2VjcmV0" not in str(caught.value)


def test_an_explicit_token_replaces_all_credentials_for_google() -> None:
    for settings in (KEY_FILE, USER, {"auth.type": "KERBEROS"}, {"auth.access.token.provider": "com.acme.Vault"}):
        translation = translate(GOOGLE, google(settings), {"token": "anon"})
        assert (translation.options, translation.ignored) == ({"token": "anon"}, ())


@pytest.mark.parametrize("owner", ["", f".{HOST}", ".account.blob.core.windows.net", f".lake.{HOST}"])
@pytest.mark.parametrize(("settings", "options"), HONOURED_ABFS)
def test_settings_of_abfs_become_options_of_adlfs(
    settings: HadoopSettings, options: dict[str, Any], owner: str
) -> None:
    assert translate(AZURE, azure(settings, owner)) == translate(AZURE, {}, options)


@pytest.mark.parametrize(("name", "settings"), IGNORED_S3A)
def test_what_of_s3a_is_not_honoured_and_changes_nothing_that_is_stored_is_named(
    name: str, settings: HadoopSettings
) -> None:
    (sentence,) = translate(S3, s3(settings)).ignored
    assert f"fs.s3a.{name}: " in sentence


@pytest.mark.parametrize(("name", "settings"), IGNORED_ABFS)
def test_what_of_abfs_is_not_honoured_is_named(name: str, settings: HadoopSettings) -> None:
    (sentence,) = translate(AZURE, azure(settings)).ignored
    assert f"fs.azure.{name}: " in sentence


@pytest.mark.parametrize(("name", "settings"), REFUSED_S3A)
def test_what_of_s3a_would_change_what_is_stored_is_refused_by_name(name: str, settings: HadoopSettings) -> None:
    with pytest.raises(InvalidInputError, match=rf"fs\.s3a\.{re.escape(name)}\b") as caught:
        translate(S3, s3(settings))
    assert "c2VjcmV0" not in str(caught.value)


@pytest.mark.parametrize(("name", "settings"), REFUSED_ABFS)
def test_what_of_abfs_would_change_what_is_stored_is_refused_by_name(name: str, settings: HadoopSettings) -> None:
    with pytest.raises(InvalidInputError, match=rf"fs\.azure\.{re.escape(name)}\b") as caught:
        translate(AZURE, azure(settings))
    assert "c2VjcmV0" not in str(caught.value)


def test_every_row_of_the_tables_is_tested() -> None:
    def named(*cases: Any) -> set[str]:
        return {name for settings in cases for name in settings}

    of_s3a = named(*(case[0] for case in HONOURED_S3A), *(case[1] for case in (*IGNORED_S3A, *REFUSED_S3A)), FULL_ROLE)
    of_abfs = named(*(case[0] for case in HONOURED_ABFS), *(case[1] for case in (*IGNORED_ABFS, *REFUSED_ABFS)))
    of_gcs = named(*(case[0] for case in HONOURED_GCS), *(case[1] for case in (*IGNORED_GCS, *REFUSED_GCS)))
    assert {name for row in gcs.ROWS for name in (row.name, *row.aliases)} <= of_gcs
    assert {name for row in s3a.ROWS for name in (row.name, *row.aliases)} <= of_s3a
    assert {name for row in abfs.ROWS for name in (row.name, *row.aliases)} <= of_abfs


def test_every_row_of_the_tables_is_in_the_documents() -> None:
    text = (Path(__file__).parents[4] / "docs/REFERENCE.md").read_text()
    section = text[text.index("## Settings of a Spark session") :].split("\n## ")[0]
    told = re.findall(r"`([^`]+)`", section)
    for row in (*s3a.ROWS, *abfs.ROWS, *gcs.ROWS):
        assert any(row.name == name or (name[0] in ".…" and row.name.endswith(name.lstrip("…"))) for name in told), row


# --- assumed roles ------------------------------------------------------------------------------------------------

FULL_ROLE = {
    **ROLE,
    "assumed.role.session.name": "etl",
    "assumed.role.session.duration": "2h",
    "assumed.role.policy": "{}",
    "assumed.role.external.id": "E",
    "assumed.role.sts.endpoint": "sts.eu-west-1.amazonaws.com",
    "assumed.role.sts.endpoint.region": "eu-west-1",
    "assumed.role.credentials.provider": f"{HADOOP}SimpleAWSCredentialsProvider",
    **PROXY,
}


def test_a_role_is_asked_for_as_s3a_does() -> None:
    translation = translate(S3, s3(FULL_ROLE))
    role = translation.role
    assert role
    assert role.request == {
        "RoleArn": "arn:r", "RoleSessionName": "etl", "DurationSeconds": 7200, "Policy": "{}", "ExternalId": "E"
    }  # fmt: skip
    assert (role.endpoint, role.region) == ("https://sts.eu-west-1.amazonaws.com", "eu-west-1")
    assert (role.key, role.secret) == ("K", "S")
    assert role.proxies == translation.options["config_kwargs"]["proxies"]
    assert "key" not in translation.options
    assert not {"'S'", "proxy"} & set(repr(role).split())


def test_a_role_may_be_asked_for_with_the_environments_credentials() -> None:
    of_environment = {**ROLE, "assumed.role.credentials.provider": f"{AWS}EnvironmentVariableCredentialsProvider"}
    role = translate(S3, s3(of_environment)).role
    assert role
    assert (role.key, role.secret, role.request["DurationSeconds"]) == (None, None, 1800)


# --- whose settings, and which go before --------------------------------------------------------------------------


def test_settings_of_the_bucket_go_before_those_of_all_also_by_their_old_names() -> None:
    settings = {
        **s3(KEYS),
        **s3(ENCRYPTED),
        "fs.s3a.bucket.lake.access.key": "B",
        "fs.s3a.bucket.lake.server-side-encryption-algorithm": "AES256",
        "fs.s3a.bucket.other.secret.key": "O",
        "fs.s3a.bucket.lake.house.secret.key": "O",
    }
    assert translate(S3, settings).options == {
        "key": "B", "secret": "S", **additional(ServerSideEncryption="AES256")
    }  # fmt: skip


def test_settings_of_the_container_go_before_those_of_the_account_and_these_before_those_of_all() -> None:
    settings = azure({"account.key": "ALL"}) | azure({"account.key": "ACCOUNT"}, f".{HOST}")
    assert translate(AZURE, settings).options == {"account_key": "ACCOUNT"}
    settings |= azure({"account.key": "CONTAINER"}, f".lake.{HOST}") | azure({"account.key": "OTHER"}, f".pond.{HOST}")
    assert translate(AZURE, settings).options == {"account_key": "CONTAINER"}
    other = azure({"account.key": "OTHER"}, ".other.dfs.core.windows.net")
    assert translate(AZURE, {**other, **s3(KEYS)}).options == {}


@pytest.mark.parametrize("location", [LOCAL, parse_location("az://lake/t"), GOOGLE])  # whose account it is, no one says
def test_elsewhere_no_setting_holds(location: Any) -> None:
    assert translate(location, {**s3(KEYS), **azure({"account.key": "A", "encryption.scope": "x"})}).options == {}


def test_explicit_options_go_before_settings_key_by_key() -> None:
    settings = s3({**ENCRYPTED, "endpoint": "minio:9", "path.style.access": "true", "endpoint.region": "here"})
    explicit = {"endpoint_url": "http://other", "config_kwargs": {"retries": {"max_attempts": 1}}}
    assert translate(S3, settings, explicit).options == {
        "endpoint_url": "http://other",
        "client_kwargs": {"region_name": "here"},
        "config_kwargs": {"retries": {"max_attempts": 1}, "s3": {"addressing_style": "path"}},
        **additional(ServerSideEncryption="aws:kms", SSEKMSKeyId="arn:key"),
    }


@pytest.mark.parametrize("explicit", [{"profile": "etl"}, {"anon": True}, {"key": "k", "secret": "s"}])
def test_explicit_credentials_replace_all_of_the_sessions(explicit: dict[str, Any]) -> None:
    for settings in (TEMPORARY, FULL_ROLE, {"aws.credentials.provider": "com.acme.Vault"}):
        translation = translate(S3, s3(settings) | s3({"proxy.host": ""}), explicit)
        assert (translation.options, translation.role, translation.ignored) == (explicit, None, ())


def test_explicit_credentials_replace_those_for_azure() -> None:
    settings = azure({**OAUTH, "account.oauth.provider.type": f"{TOKENS}MsiTokenProvider"})
    assert translate(AZURE, settings, {"account_key": "k"}).options == {"account_key": "k"}


@pytest.mark.parametrize(
    ("settings", "explicit"),
    [
        ({"encryption.algorithm": "SSE-C"}, {"ServerSideEncryption": "AES256"}),
        (ENCRYPTED, {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "x"}),
        ({"create.storage.class": "glacier"}, {"StorageClass": "STANDARD"}),
        ({"acl.default": "Everybody"}, {"ACL": "private"}),
    ],
)
def test_what_is_refused_can_be_said_otherwise(settings: HadoopSettings, explicit: dict[str, str]) -> None:
    assert translate(S3, s3(settings), additional(**explicit)).options == additional(**explicit)


@given(st.dictionaries(st.sampled_from(sorted(row.name for row in s3a.ROWS)), st.sampled_from(["true", "x", " "])))
def test_narrowed_settings_mean_the_same(settings: HadoopSettings) -> None:
    narrowed = narrow(S3, s3(settings))
    assert narrow(S3, narrowed) == narrowed
    try:
        expected = translate(S3, s3(settings))
    except InvalidInputError:
        return
    assert translate(S3, narrowed) == expected


def test_known_and_secret_names_are_told_apart() -> None:
    secret = [
        "fs.s3a.access.key",
        "fs.s3a.bucket.my.lake.secret.key",
        f"fs.azure.account.key.{HOST}",
        "fs.azure.sas.fixed.token",
        "fs.s3a.server-side-encryption.key",
        "fs.gs.auth.service.account.private.key",
        "google.cloud.auth.client.secret",
    ]
    known = [
        "fs.gs.auth.type",
        "google.cloud.auth.service.account.json.keyfile",
        "fs.s3a.endpoint",
        "fs.s3a.bucket.b.endpoint.region",
        f"fs.azure.account.auth.type.{HOST}",
    ]
    unknown = [
        "fs.s3a.threads.max",
        "fs.s3a.bucket.b.committer.name",
        "fs.azure.io.read",
        "fs.gs.http.max.retry",
        "spark.fs.s3a.access.key",
    ]
    assert all(map(is_secret, secret))
    assert not any(map(is_secret, known))
    assert all(map(is_known, secret + known))
    assert not any(map(is_known, unknown))


def test_the_context_of_an_encryption_is_json_in_base64() -> None:
    assert json.loads(b64decode(CONTEXT)) == {"a": "1", "b": "2=3"}


# --- adlfs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "kind"), [("Msi", "ManagedIdentityCredential"), ("WorkloadIdentity", "WorkloadIdentityCredential")]
)
def test_the_identity_that_the_session_names_is_asked_for_and_no_other(
    provider: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AUTHORITY_HOST", "TENANT_ID", "FEDERATED_TOKEN_FILE"):  # as a pod has them
        monkeypatch.setenv(f"AZURE_{name}", "/token")
    settings = {**OAUTH, "account.oauth.provider.type": f"{TOKENS}{provider}TokenProvider"}
    settings |= {"account.oauth2.client.id": "I", "account.oauth2.msi.tenant": "T"}
    store = AzureStore(AZURE, translate(AZURE, azure(settings)).options)
    assert [type(credential).__name__ for credential in store.fs.credential.credentials] == [kind]
