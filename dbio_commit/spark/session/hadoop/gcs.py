"""The settings of Google's connector (gcs-connector 3, and hadoop-gcp 3.5) as options of gcsfs. Pure."""

from urllib.parse import quote, urlsplit

from dbio_commit.spark.session.hadoop.row import INSTEAD, Draft, Row, ignored_credential, part, refused

_ANY = "COMPUTE_ENGINE"  # it is Hadoop's default: also of a session that says nothing, or names a key file alone
_TOKEN_SERVER = "https://oauth2.googleapis.com/token"


def credentials(draft: Draft) -> None:
    """By the kind of authentication; where none is named, the first that is there, or else the environment."""
    row = "auth.type"
    kind = (draft.get(row) or _ANY).upper()
    match kind:
        case "UNAUTHENTICATED":
            draft.put("token", value="anon")
        case "APPLICATION_DEFAULT":
            draft.put("token", value="google_default")
        case "ACCESS_TOKEN_PROVIDER" | "WORKLOAD_IDENTITY_FEDERATION_CREDENTIAL_CONFIG_FILE":
            pass  # their rows tell
        case "SERVICE_ACCOUNT_JSON_KEYFILE" | "USER_CREDENTIALS" | "COMPUTE_ENGINE":
            found = kind != "USER_CREDENTIALS" and _service_account(draft)
            found = found or (kind != "SERVICE_ACCOUNT_JSON_KEYFILE" and _user(draft))
            if not found and kind == _ANY and draft.is_true("auth.null.enable"):
                draft.put("token", value="anon")
            elif not found and kind != _ANY:
                draft.ignore(row, f"nothing says which, for {kind}; {INSTEAD}")
        case _:
            draft.ignore(row, f"{kind} has no counterpart in Python; {INSTEAD}")


def _service_account(draft: Draft) -> bool:
    """Whether there is one."""
    if path := draft.get("auth.service.account.json.keyfile"):
        draft.put("token", value=path)
        return True
    email, key = draft.get("auth.service.account.email"), draft.get("auth.service.account.private.key")
    if not email or not key:
        return False
    account = {
        "type": "service_account",
        "client_email": email,
        "private_key": key.replace("\\n", "\n"),
        "private_key_id": draft.get("auth.service.account.private.key.id") or "",
        "token_uri": draft.get("token.server.url") or _TOKEN_SERVER,
    }
    draft.put("token", value=account)
    return True


def _user(draft: Draft) -> bool:
    """Whether there is one."""
    names = {"client_id": "client.id", "client_secret": "client.secret", "refresh_token": "refresh.token"}
    found = {option: draft.get(f"auth.{name}") for option, name in names.items()}
    if not all(found.values()):
        return False
    draft.put("token", value={"type": "authorized_user", **found})
    return True


def _token_provider(draft: Draft, name: str, value: str) -> None:
    if draft.takes_credentials and "token" not in draft.options:
        draft.ignore(name, f"{value} runs in Java only; {INSTEAD}")


# --- the service --------------------------------------------------------------------------------------------------


def _endpoint(draft: Draft, name: str, value: str) -> None:
    if urlsplit(value).hostname != "storage.googleapis.com":
        draft.put("endpoint_url", value=value.rstrip("/"))


def _service_path(draft: Draft, name: str, value: str) -> None:
    if value.strip("/") != "storage/v1":
        draft.refuse(name, "requests would go to storage/v1/; unset it", value=value)


def _requester_pays(draft: Draft, name: str, value: str) -> None:
    """`AUTO` asks as nobody who pays first, and again where that is refused; we do not."""
    mode = value.upper()
    buckets = (draft.get("requester.pays.buckets") or "").replace(",", " ").split()
    if mode == "AUTO":
        draft.ignore(name, "no bucket is tried without who pays first; name it in requester.pays.buckets, with CUSTOM")
    if mode != "ENABLED" and not (mode == "CUSTOM" and draft.container in buckets):
        return
    if project := draft.get("requester.pays.project.id") or draft.get("project.id"):
        draft.put("requester_pays", value=project)
    else:
        draft.refuse(name, "it names nobody who pays; set requester.pays.project.id beside it", value=value)


def _proxy(draft: Draft, name: str, value: str) -> None:
    url = urlsplit(value if "://" in value else f"http://{value}")
    user, password = draft.get("proxy.username"), draft.get("proxy.password") or ""
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
    draft.put("session_kwargs", "proxy", value=f"{url.scheme}://{login}{url.netloc}")


_UNENCRYPTED = "nothing would be encrypted by it; give the bucket a key of Cloud KMS, and unset it"

ROWS = (
    Row("auth.type", part),
    Row("auth.service.account.enable", part),
    Row("auth.service.account.json.keyfile", part),
    Row("auth.service.account.email", part),
    Row("auth.service.account.private.key.id", part, secret=True),
    Row("auth.service.account.private.key", part, secret=True),
    Row("auth.service.account.keyfile", ignored_credential("Java alone reads keys in PKCS #12")),
    Row("auth.client.id", part, secret=True),
    Row("auth.client.secret", part, secret=True),
    Row("auth.refresh.token", part, secret=True),
    Row("auth.null.enable", part),
    Row("auth.access.token.provider", _token_provider, ("auth.access.token.provider.impl",)),
    Row(
        "auth.workload.identity.federation.credential.config.file",
        ignored_credential("GOOGLE_APPLICATION_CREDENTIALS says the same"),
    ),
    Row("auth.impersonation.service.account", ignored_credential("it asks as whom the credentials are of")),
    Row("delegation.token.binding", ignored_credential("delegation tokens are of use to Hadoop only")),
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
