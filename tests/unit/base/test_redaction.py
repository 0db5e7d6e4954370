"""What is secret among options, in the environment and in a text, and that nothing else is hidden."""

import html
import io
import json
import logging
import random
import time
import traceback
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.base import redaction
from dbio_commit.base.logs import get_logger
from dbio_commit.base.redaction import is_secret_name, redact, secrets_in, secrets_of_clients
from dbio_commit.store import open_store
from dbio_commit.store.fsspec_store import FsspecStore
from dbio_commit.store.location import parse_location
from vacuum.events import cause_text
from vacuum.log import _Clean

SECRET = "hunter2hunter2"
JWT = "eyJhbGciOi.eyJzdWIi.abc"


class Session:
    """As aiobotocore's: the credentials are an object in an object."""

    def __init__(self) -> None:
        self._credentials = Credentials()
        self.user_agent_name = "aiobotocore"


class Credentials:
    def __init__(self) -> None:
        self.secret_key, self.method = SECRET, "assume-role"


@pytest.mark.parametrize(
    "options",
    [
        {"secret": SECRET},
        {"secret": SECRET.encode()},
        {"client_kwargs": {"headers": [f"x-key: {SECRET}"]}},
        {"client_kwargs": {"headers": ("a", {"token": SECRET})}},
        {"client_kwargs": {"headers": {"Authorization": f"Bearer {SECRET}"}}},
        {"client_kwargs": [[({SECRET},)]]},
        {"config_kwargs": {"proxies": {"http": f"user:{SECRET}@proxy:3128"}}},
        {"config_kwargs": {"proxies": {"http": f"http://user:{SECRET}@proxy:3128"}}},
        {"connection_string": f"AccountName=a;AccountKey={SECRET};EndpointSuffix=core.windows.net"},
        {"sas_token": f"sv=2022&sp=r&sig={SECRET}&se=2"},
        {"session": Session()},
        {"token": {"type": "service_account", "private_key": f"-----BEGIN PRIVATE KEY-----\nQUJD\n{SECRET}\n-----END"}},
        {"token": {"type": "authorized_user", "refresh_token": SECRET}},
        {"token": Credentials()},
    ],
)
def test_a_secret_is_found_wherever_it_lies_among_the_options(options: dict[str, Any]) -> None:
    assert redact(f"the service says {SECRET} is none", secrets_in(options)) == "the service says *** is none"


KEY_FILE = json.dumps(
    {
        "type": "service_account",
        "private_key_id": "0123456789abcdef",
        "private_key": f"-----BEGIN PRIVATE KEY-----\nQUJD\n{SECRET}\nREVG\n-----END PRIVATE KEY-----\n",
        "client_email": "a@p.iam.gserviceaccount.com",
    }
)

FORMS = [
    f"https://acc.blob.core.windows.net/c/x?sv=1&sig={SECRET}&se=2",
    f"sig={SECRET}",
    f"AccountName=a;AccountKey={SECRET};EndpointSuffix=core.windows.net",
    f"?sv=2020&SharedAccessSignature={SECRET}",
    f"Authorization: Bearer {SECRET}",
    f"'Authorization': 'SharedKey account:{SECRET}'",
    f"Authorization: AWS4-HMAC-SHA256 Credential=AKIA/x, SignedHeaders=host, Signature={SECRET}",
    f"the token bearer {SECRET} has expired",
    f"aws_secret_access_key={SECRET}",
    f'{{"access_token": "{SECRET}", "expires": 1}}',
    f"x-amz-security-token: {SECRET}",
    f"https://user:p@{SECRET}@host/x",
    f"socks5://user:{SECRET}@proxy:1080 refused",
    f"the token ya29.{SECRET} has expired",
    f"POST https://host/upload/storage/v1/b/b/o?uploadType=resumable&upload_id={SECRET}",
    f"no key is in -----BEGIN RSA PRIVATE KEY-----\nQUJD\n{SECRET}\n-----END RSA PRIVATE KEY-----",
    f"no key is in '-----BEGIN PRIVATE KEY-----\\nQUJD{SECRET}",
    f"File {KEY_FILE} was not found",
    f"cannot open postgresql+psycopg://user:{SECRET}@db:5432/x",
    f"redis://:{SECRET}@host",
    f"python job.py --password {SECRET} s3://bucket/t",
    f"Password: '{SECRET}'",
    f"{{'client_secret': b'{SECRET}'}}",
    f"x-amz-server-side-encryption-customer-key: {SECRET}",
    f"('x-goog-encryption-key', '{SECRET}')",
    f"grant_type=jwt-bearer&assertion={SECRET}",
    f"sc://host:15002/;token={SECRET}",
    f"token: {SECRET}",
    f"spark.hadoop.fs.s3a.secret.key={SECRET}",
    f"spark-submit --conf spark.hadoop.fs.s3a.bucket.b.session.token={SECRET}",
    f"fs.azure.account.key.acc.dfs.core.windows.net={SECRET}",
    f"fs.azure.account.oauth2.client.secret.acc.dfs.core.windows.net: {SECRET}",
    f"fs.gs.auth.service.account.private.key={SECRET}",
    f"javax.jdo.option.ConnectionPassword={SECRET}",
    f"<name>fs.s3a.secret.key</name> <value>{SECRET}</value>",
    f"<Credentials><SecretAccessKey>{SECRET}</SecretAccessKey></Credentials>",
    f"Set-Cookie: session={SECRET}; Secure",
    f'"password": "a\\"{SECRET}"',
]


def raised(text: str) -> BaseException:
    """What a store raises if its client repeats this text, and says it of its own cause, too."""
    store = open_store(parse_location("s3://bucket/t"), {})
    assert isinstance(store, FsspecStore)

    def fail() -> None:
        try:
            raise ValueError(text)
        except ValueError as cause:
            raise OSError(f"the client says {text}") from cause

    with pytest.raises(Exception, match="cannot read") as found:
        store.call("read", "_marker", fail)
    return found.value


def logged(error: BaseException, text: str) -> str:
    logger, stream = get_logger(f"{__name__}.logged"), io.StringIO()
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)
    try:
        logger.error("it says %s", text, exc_info=error)
    finally:
        logger.removeHandler(handler)
    return stream.getvalue()


WAYS: dict[str, Callable[[str], str]] = {
    "a message": lambda text: str(raised(text)),
    "a repr": lambda text: repr(raised(text)),
    "the causes": lambda text: "".join(traceback.format_exception(raised(text))),
    "a log": lambda text: logged(OSError(text), text),
    "the log of the service": lambda text: json.dumps(
        _Clean(())(None, "error", {"event": "failed", "message": text, "facts": [text], "exception": f"Trace: {text}"})
    ),
    "the page of the service": lambda text: cause_text(text, ()),
}

ESCAPES: list[Callable[[str], str]] = [
    str,
    lambda text: quote(text, safe=""),
    json.dumps,
    lambda text: json.dumps(json.dumps({"inner": json.dumps(text)})),
    lambda text: quote(json.dumps(text)),
    lambda text: repr(text.encode()),
    html.escape,
]


@pytest.mark.parametrize("way", WAYS)
def test_what_is_a_secret_in_any_text_leaves_by_no_way(way: str) -> None:
    for text in FORMS:
        shown = WAYS[way](text)
        assert SECRET not in shown, text
        assert "***" in shown, text


@pytest.mark.parametrize("text", FORMS)
def test_what_is_a_secret_in_any_text_is_found_in_any_encoding(text: str) -> None:
    for escape in ESCAPES:
        assert SECRET not in redact(escape(text)), escape(text)


def test_all_of_the_text_of_a_key_file_that_was_given_as_a_credential_is_found() -> None:
    shown = redact(f"cannot use {KEY_FILE} or REVG{SECRET}", secrets_in({"token": KEY_FILE}))
    assert SECRET not in shown
    assert "a@p.iam.gserviceaccount.com" in shown


@given(st.lists(st.sampled_from(FORMS), min_size=2, max_size=4), st.randoms())
def test_the_order_of_rules_makes_no_difference(texts: list[str], chance: random.Random) -> None:
    text = " ".join(texts)
    shown, rules = redact(text), [*redaction._RULES]
    chance.shuffle(rules)
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(redaction, "_RULES", rules)
        assert redact(text) == shown


PIECES = [
    *("a", "-", ".", "%", "%25", "25", "\\", "\\\\", '"', "'", "a=", "token=", 'token="', "token='", "password", " "),
    *("--password ", "eyJ", "eyJaaaa", "-eyJaaaa", "bearer ", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "\n", "é"),
    *("-----END ", "http://", "http://a:", "a://", "x:y@", "<secret>", "&amp;", "&", "b'", "\\u0041", "ghp_", "sk-"),
    *("key.", "account.key.", ".dfs.", "secret.", "authorization: ", "{", "ya29.", "xoxb-", "</name>", "aaaaaaaa"),
]


def seconds(text: str) -> float:
    found = secrets_in({"secret": "aaaaaaaab", "key": "%" * 9, "token": '\\\\\\\\\\\\\\\\"'})
    start = time.process_time()
    redact(text, found)
    return time.process_time() - start


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_time_grows_with_the_length_of_a_text_and_no_faster(size: int) -> None:
    """A quadratic rule takes 4 s for one of these texts."""
    chance = random.Random(size)
    for pieces in [[it] for it in PIECES] if size == 1 else [chance.choices(PIECES, k=size) for _ in range(60)]:
        text = "".join(pieces)
        assert seconds(text * (32_000 // len(text))) < 0.5, pieces


@pytest.mark.parametrize(
    "token",
    [
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a_1" * 20,
        "xoxb-123456789012-abcdef",
        "glpat-" + "a-1" * 8,
        "dapi" + "0f" * 16,
    ],
)
def test_a_token_whose_beginning_names_its_service_is_not_shown(token: str) -> None:
    assert redact(f"with {token}, twice") == "with ***, twice"


def test_a_json_web_token_is_not_shown() -> None:
    assert redact(f"token {JWT} is expired") == "token *** is expired"


@pytest.mark.parametrize(
    "text",
    [
        "Authorization failed for the account; AuthorizationPermissionMismatch",
        "cannot read s3://bucket/day=1/a@b: no such key",
        "abfss://c@a.dfs.core.windows.net/t is gone",
        "bearer authentication is not supported, give a password",
        "Bearer authorization_uri=https://login.example/x",
        "the signature does not match; /design=1/sigma=2",
        "The AWS Access Key Id that you provided does not exist",
        "arn:aws:iam::123456789012:role/reader at http://127.0.0.1:9000/bucket",
        "DefaultEndpointsProtocol=https;AccountName=account;EndpointSuffix=core.windows.net",
        "s3://bucket/a:b@c, hdfs://namenode:8020/user@x and wasbs://c@a.blob.core.windows.net/t",
        "the password is wrong; give --password-file /run/secrets/x, or read lake/sk-orders-and-customers-of-2026",
        "writer@my-project.iam.gserviceaccount.com does not have storage.objects.create access to the bucket",
        "InvalidToken: The provided token is malformed; SignatureDoesNotMatch: check the key",
        "unable to locate credentials: none are given; password=None, session_token=null",
        "unexpected token: expected '}' at 100%25 of C:\\new\\table",
        "NoSuchKey: the key lake/token/part-0.parquet does not exist; Key=lake/x, KMSKeyId=1234abcd",
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert redact(text) == text


def test_parts_of_a_connection_string_that_are_no_secrets_are_shown() -> None:
    found = secrets_in(
        {"connection_string": "AccountName=myaccount;AccountKey=QUJDREVGRw==;EndpointSuffix=core.windows.net"}
    )
    assert redact("QUJDREVGRw== of myaccount.blob.core.windows.net", found) == "*** of myaccount.blob.core.windows.net"


def test_who_a_service_account_is_and_where_its_key_lies_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/var/run/key.json")
    facts = {"type": "service_account", "project_id": "my-project-1", "client_email": "a@b.iam.gserviceaccount.com"}
    text = "a@b.iam.gserviceaccount.com, a service_account of my-project-1 with /var/run/key.json"
    assert redact(text, secrets_in({"token": facts}) | secrets_of_clients()) == text


@pytest.mark.parametrize(
    "name",
    [
        *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_CONTAINER_AUTHORIZATION_TOKEN"),
        *("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_CLIENT_SECRET"),
        *("AZURE_PASSWORD", "IDENTITY_HEADER", "MSI_SECRET"),
    ],
)
def test_secrets_that_the_environment_gives_to_clients_are_not_shown(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, SECRET)
    assert redact(f"{SECRET} is refused", secrets_of_clients()) == "*** is refused"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AZURE_STORAGE_CONNECTION_STRING", f"AccountName=a;AccountKey={SECRET};"),
        ("HTTPS_PROXY", f"user:{SECRET}@proxy:3128"),
        ("http_proxy", f"http://user:{SECRET}@proxy:3128"),
    ],
)
def test_secrets_within_a_variable_are_not_shown(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert redact(f"{SECRET} is refused", secrets_of_clients()) == "*** is refused"


def test_places_of_secrets_and_other_programs_variables_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("KEYRING_PLACE", "/home/somebody")
    text = "/var/run/token in eu-central-1 of /home/somebody"
    assert redact(text, secrets_of_clients()) == text
    assert not is_secret_name("AZURE_FEDERATED_TOKEN_FILE")


def test_a_short_text_is_not_searched_for() -> None:
    assert redact("short12 is part of a word", secrets_in({"token": "short12"})) == "short12 is part of a word"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda it: st.lists(it) | st.dictionaries(st.text(), it) | st.tuples(it),
)


@given(anything, st.text())
def test_nothing_makes_it_fail(options: object, text: str) -> None:
    redact(text, secrets_in(options))


@given(st.text(min_size=8), st.sampled_from(ESCAPES[:4]))
def test_a_secret_of_the_options_is_found_in_any_encoding(secret: str, escape: Callable[[str], str]) -> None:
    if "://" not in secret:
        escaped = escape(secret.encode(errors="replace").decode())
        inside = escape("x")
        assert redact(escaped, secrets_in({"secret": secret.encode(errors="replace").decode()})) in (
            inside.replace("x", "***"),
            "***",
        )


@given(st.text(min_size=8), st.text(), st.text())
def test_no_secret_is_left_of_any_text(secret: str, before: str, after: str) -> None:
    if "://" not in secret:
        assert secret not in redact(f"{before}{secret}{after}", secrets_in({"secret": secret})) or secret in "***"
