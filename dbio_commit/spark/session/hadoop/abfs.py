"""The settings of ABFS (hadoop-azure 3.5) as options of adlfs. Pure."""

from urllib.parse import urlsplit

from dbio_commit.spark.session.hadoop.row import INSTEAD, Draft, Row, class_name, part, refused

_AUTHORITIES = ("login.microsoftonline.com", "login.windows.net", "sts.windows.net")
_OTHERS = ("environment", "shared_token_cache", "visual_studio_code", "cli", "powershell", "developer_cli")
_TOKEN_FILE = "/var/run/secrets/azure/tokens/azure-identity-token"


def credentials(draft: Draft) -> None:
    """By the kind of authentication; where none is named, the first that is there."""
    kind = (draft.get("account.auth.type") or "").lower()
    key, token = draft.get("account.key"), draft.get("sas.fixed.token")
    provider = draft.get("account.keyprovider")
    if provider and kind in ("", "sharedkey") and class_name(provider) != "SimpleKeyProvider":
        draft.ignore("account.keyprovider", f"{provider} runs in Java only; {INSTEAD}")
    elif key and kind in ("", "sharedkey"):
        draft.put("account_key", value=key)
    elif token and kind in ("", "sas"):
        draft.put("sas_token", value=token)
    elif kind == "sas" and (provider := draft.get("sas.token.provider.type")):
        draft.ignore("sas.token.provider.type", f"{provider} runs in Java only; {INSTEAD}")
    elif kind in ("", "oauth"):
        _oauth(draft)
    elif kind not in ("sharedkey", "sas"):
        draft.ignore("account.auth.type", f"{kind} has no counterpart in Python; {INSTEAD}")


def _oauth(draft: Draft) -> None:
    row, client = "account.oauth.provider.type", draft.get("account.oauth2.client.id")
    provider = draft.get(row) or "ClientCredsTokenProvider"
    match class_name(provider):
        case "ClientCredsTokenProvider":
            _client_credentials(draft)
        case "MsiTokenProvider":
            _only(draft, "managed_identity", "workload_identity", client_id=client)
            if draft.get("account.oauth2.msi.endpoint"):
                draft.ignore("account.oauth2.msi.endpoint", f"the identity is asked for where the SDK does; {INSTEAD}")
        case "WorkloadIdentityTokenProvider":
            tenant = draft.get("account.oauth2.msi.tenant")
            _only(draft, "workload_identity", "managed_identity", client_id=client, tenant_id=tenant)
            if (draft.get("account.oauth2.token.file") or _TOKEN_FILE) != _TOKEN_FILE:
                draft.ignore("account.oauth2.token.file", "AZURE_FEDERATED_TOKEN_FILE in the environment says the same")
        case _:
            draft.ignore(row, f"{provider} runs in Java only; {INSTEAD}")


def _client_credentials(draft: Draft) -> None:
    for option, name in (("client_id", "client.id"), ("client_secret", "client.secret")):
        if value := draft.get(f"account.oauth2.{name}"):
            draft.put(option, value=value)
    name = "account.oauth2.client.endpoint"
    if not (endpoint := draft.get(name)):
        return
    url = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
    tenant = url.path.split("/")[1] if "/" in url.path else ""
    if not tenant:
        draft.refuse(name, "it names no tenant; write https://login.microsoftonline.com/TENANT/oauth2/token")
    draft.put("tenant_id", value=tenant)
    if url.hostname not in _AUTHORITIES:
        draft.ignore(name, f"its host; set AZURE_AUTHORITY_HOST={url.hostname} for the driver and the workers")


def _only(draft: Draft, identity: str, other: str, **of_identity: str | None) -> None:
    """Of the SDK's chain of credentials this one alone; adlfs hands the chain what it does not know itself."""
    for name, value in of_identity.items():
        if value:
            draft.put(f"{identity}_{name}", value=value)
    for excluded in (*_OTHERS, other):
        draft.put(f"exclude_{excluded}_credential", value=True)


_UNENCRYPTED = "nothing would be encrypted by it; set the encryption on the account or the container, and unset it"

ROWS = (
    Row("account.auth.type", part),
    Row("account.key", part, secret=True),
    Row("account.keyprovider", part),
    Row("sas.fixed.token", part, secret=True),
    Row("sas.token.provider.type", part),
    Row("account.oauth.provider.type", part),
    Row("account.oauth2.client.id", part, secret=True),
    Row("account.oauth2.client.secret", part, secret=True),
    Row("account.oauth2.client.endpoint", part, secret=True),
    Row("account.oauth2.msi.tenant", part, secret=True),
    Row("account.oauth2.msi.endpoint", part),
    Row("account.oauth2.token.file", part),
    Row("encryption.context.provider.type", refused(_UNENCRYPTED)),
    Row("encryption.encoded.client-provided-key", refused(_UNENCRYPTED), ("client-provided-encryption-key",), True),
    Row("encryption.encoded.client-provided-key-sha", refused(_UNENCRYPTED), secret=True),
    Row("encryption.scope", refused(_UNENCRYPTED)),
)
