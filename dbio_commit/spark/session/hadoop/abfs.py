"""Translates the settings of ABFS (hadoop-azure 3.5) to options of adlfs. Pure."""

from urllib.parse import urlsplit

from dbio_commit.spark.session.hadoop.row import INSTEAD, OptionsBuilder, Row, class_name, part, refused

_AUTHORITIES = ("login.microsoftonline.com", "login.windows.net", "sts.windows.net")
_OTHERS = ("environment", "shared_token_cache", "visual_studio_code", "cli", "powershell", "developer_cli")
_TOKEN_FILE = "/var/run/secrets/azure/tokens/azure-identity-token"


def credentials(builder: OptionsBuilder) -> None:
    """Takes the credentials of the kind that the settings name; without a kind, the first that they have."""
    kind = (builder.get("account.auth.type") or "").lower()
    key, token = builder.get("account.key"), builder.get("sas.fixed.token")
    provider = builder.get("account.keyprovider")
    if provider and kind in ("", "sharedkey") and class_name(provider) != "SimpleKeyProvider":
        builder.ignore("account.keyprovider", f"{provider} runs in Java only; {INSTEAD}")
    elif key and kind in ("", "sharedkey"):
        builder.put("account_key", value=key)
    elif token and kind in ("", "sas"):
        builder.put("sas_token", value=token)
    elif kind == "sas" and (provider := builder.get("sas.token.provider.type")):
        builder.ignore("sas.token.provider.type", f"{provider} runs in Java only; {INSTEAD}")
    elif kind in ("", "oauth"):
        _oauth(builder)
    elif kind not in ("sharedkey", "sas"):
        builder.ignore("account.auth.type", f"{kind} has no counterpart in Python; {INSTEAD}")


def _oauth(builder: OptionsBuilder) -> None:
    row, client = "account.oauth.provider.type", builder.get("account.oauth2.client.id")
    provider = builder.get(row) or "ClientCredsTokenProvider"
    match class_name(provider):
        case "ClientCredsTokenProvider":
            _client_credentials(builder)
        case "MsiTokenProvider":
            _only(builder, "managed_identity", "workload_identity", client_id=client)
            if builder.get("account.oauth2.msi.endpoint"):
                builder.ignore("account.oauth2.msi.endpoint", f"the SDK chooses where to ask; {INSTEAD}")
        case "WorkloadIdentityTokenProvider":
            tenant = builder.get("account.oauth2.msi.tenant")
            _only(builder, "workload_identity", "managed_identity", client_id=client, tenant_id=tenant)
            if (builder.get("account.oauth2.token.file") or _TOKEN_FILE) != _TOKEN_FILE:
                builder.ignore("account.oauth2.token.file", "set AZURE_FEDERATED_TOKEN_FILE in the environment")
        case _:
            builder.ignore(row, f"{provider} runs in Java only; {INSTEAD}")


def _client_credentials(builder: OptionsBuilder) -> None:
    for option, name in (("client_id", "client.id"), ("client_secret", "client.secret")):
        if value := builder.get(f"account.oauth2.{name}"):
            builder.put(option, value=value)
    name = "account.oauth2.client.endpoint"
    if not (endpoint := builder.get(name)):
        return
    url = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
    tenant = url.path.split("/")[1] if "/" in url.path else ""
    if not tenant:
        builder.refuse(name, "it names no tenant; write https://login.microsoftonline.com/TENANT/oauth2/token")
    builder.put("tenant_id", value=tenant)
    if url.hostname not in _AUTHORITIES:
        builder.ignore(name, f"its host; set AZURE_AUTHORITY_HOST={url.hostname} for the driver and the workers")


def _only(builder: OptionsBuilder, identity: str, other: str, **of_identity: str | None) -> None:
    """Has the SDK use only this credential of its chain. adlfs passes options that it does not know to the chain."""
    for name, value in of_identity.items():
        if value:
            builder.put(f"{identity}_{name}", value=value)
    for excluded in (*_OTHERS, other):
        builder.put(f"exclude_{excluded}_credential", value=True)


_UNENCRYPTED = "dbio does not encrypt with it; set the encryption on the account or the container, and unset it"

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
