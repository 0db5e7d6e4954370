"""Translates the settings of Google's connector (gcs-connector 3, hadoop-gcp 3.5) to options of gcsfs. Pure."""

from urllib.parse import quote, urlsplit

from dbio_commit.spark.session.hadoop.row import INSTEAD, OptionsBuilder, Row, ignored_credential, part, refused

_ANY = "COMPUTE_ENGINE"  # Hadoop's default: also if a session sets nothing, or only a key file
_TOKEN_SERVER = "https://oauth2.googleapis.com/token"


def credentials(builder: OptionsBuilder) -> None:
    """Takes the credentials of the kind that the settings name; without a kind, the first that they have, if any."""
    row = "auth.type"
    kind = (builder.get(row) or _ANY).upper()
    match kind:
        case "UNAUTHENTICATED":
            builder.put("token", value="anon")
        case "APPLICATION_DEFAULT":
            builder.put("token", value="google_default")
        case "ACCESS_TOKEN_PROVIDER" | "WORKLOAD_IDENTITY_FEDERATION_CREDENTIAL_CONFIG_FILE":
            pass  # the rows of these settings report them
        case "SERVICE_ACCOUNT_JSON_KEYFILE" | "USER_CREDENTIALS" | "COMPUTE_ENGINE":
            found = kind != "USER_CREDENTIALS" and _service_account(builder)
            found = found or (kind != "SERVICE_ACCOUNT_JSON_KEYFILE" and _user(builder))
            if not found and kind == _ANY and builder.is_true("auth.null.enable"):
                builder.put("token", value="anon")
            elif not found and kind != _ANY:
                builder.ignore(row, f"no setting has the credentials for {kind}; {INSTEAD}")
        case _:
            builder.ignore(row, f"{kind} has no counterpart in Python; {INSTEAD}")


def _service_account(builder: OptionsBuilder) -> bool:
    """Takes the credentials of a service account. Returns whether there are any."""
    if path := builder.get("auth.service.account.json.keyfile"):
        builder.put("token", value=path)
        return True
    email, key = builder.get("auth.service.account.email"), builder.get("auth.service.account.private.key")
    if not email or not key:
        return False
    account = {
        "type": "service_account",
        "client_email": email,
        "private_key": key.replace("\\n", "\n"),
        "private_key_id": builder.get("auth.service.account.private.key.id") or "",
        "token_uri": builder.get("token.server.url") or _TOKEN_SERVER,
    }
    builder.put("token", value=account)
    return True


def _user(builder: OptionsBuilder) -> bool:
    """Takes the credentials of a user. Returns whether there are any."""
    names = {"client_id": "client.id", "client_secret": "client.secret", "refresh_token": "refresh.token"}
    found = {option: builder.get(f"auth.{name}") for option, name in names.items()}
    if not all(found.values()):
        return False
    builder.put("token", value={"type": "authorized_user", **found})
    return True


def _token_provider(builder: OptionsBuilder, name: str, value: str) -> None:
    if builder.takes_credentials and "token" not in builder.options:
        builder.ignore(name, f"{value} runs in Java only; {INSTEAD}")


# --- the service --------------------------------------------------------------------------------------------------


def _endpoint(builder: OptionsBuilder, name: str, value: str) -> None:
    if urlsplit(value).hostname != "storage.googleapis.com":
        builder.put("endpoint_url", value=value.rstrip("/"))


def _service_path(builder: OptionsBuilder, name: str, value: str) -> None:
    if value.strip("/") != "storage/v1":
        builder.refuse(name, "requests would go to storage/v1/; unset it", value=value)


def _requester_pays(builder: OptionsBuilder, name: str, value: str) -> None:
    """Names the project that pays. Hadoop's `AUTO` first tries a bucket without it; dbio does not."""
    mode = value.upper()
    buckets = (builder.get("requester.pays.buckets") or "").replace(",", " ").split()
    if mode == "AUTO":
        builder.ignore(
            name, "dbio does not find out which buckets need it; name them in requester.pays.buckets, with CUSTOM"
        )
    if mode != "ENABLED" and not (mode == "CUSTOM" and builder.container in buckets):
        return
    if project := builder.get("requester.pays.project.id") or builder.get("project.id"):
        builder.put("requester_pays", value=project)
    else:
        builder.refuse(name, "no project is set that pays; set requester.pays.project.id, too", value=value)


def _proxy(builder: OptionsBuilder, name: str, value: str) -> None:
    url = urlsplit(value if "://" in value else f"http://{value}")
    user, password = builder.get("proxy.username"), builder.get("proxy.password") or ""
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
    builder.put("session_kwargs", "proxy", value=f"{url.scheme}://{login}{url.netloc}")


_UNENCRYPTED = "dbio does not encrypt with it; give the bucket a key of Cloud KMS, and unset it"

ROWS = (
    Row("auth.type", part),
    Row("auth.service.account.enable", part),
    Row("auth.service.account.json.keyfile", part),
    Row("auth.service.account.email", part),
    Row("auth.service.account.private.key.id", part, secret=True),
    Row("auth.service.account.private.key", part, secret=True),
    Row("auth.service.account.keyfile", ignored_credential("only Java reads keys in PKCS #12")),
    Row("auth.client.id", part, secret=True),
    Row("auth.client.secret", part, secret=True),
    Row("auth.refresh.token", part, secret=True),
    Row("auth.null.enable", part),
    Row("auth.access.token.provider", _token_provider, ("auth.access.token.provider.impl",)),
    Row(
        "auth.workload.identity.federation.credential.config.file",
        ignored_credential("dbio reads GOOGLE_APPLICATION_CREDENTIALS instead"),
    ),
    Row("auth.impersonation.service.account", ignored_credential("dbio uses the identity of the credentials")),
    Row("delegation.token.binding", ignored_credential("only Hadoop can use delegation tokens")),
    Row("token.server.url", part),
    Row("project.id", part),
    Row("storage.root.url", _endpoint),
    Row("storage.service.path", _service_path),
    Row("requester.pays.mode", _requester_pays),
    Row("requester.pays.project.id", part),
    Row("requester.pays.buckets", part),
    Row("proxy.address", _proxy),
    Row("proxy.username", part, secret=True),
    Row("proxy.password", part, secret=True),
    Row("encryption.algorithm", refused(_UNENCRYPTED)),
    Row("encryption.key", refused(_UNENCRYPTED), secret=True),
    Row("encryption.key.hash", refused(_UNENCRYPTED), secret=True),
)
