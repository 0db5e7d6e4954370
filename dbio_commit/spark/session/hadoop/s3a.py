"""Translates the settings of S3A (hadoop-aws 3.5) to options of s3fs. Pure."""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from dbio_commit.spark.session.hadoop.row import (
    INSTEAD,
    Apply,
    AssumedRole,
    OptionsBuilder,
    Row,
    class_name,
    if_true,
    ignored,
    ignored_credential,
    part,
    refused,
)

# --- credentials --------------------------------------------------------------------------------------------------

_WITH_TOKEN = "TemporaryAWSCredentialsProvider"
_WITH_KEY = {"SimpleAWSCredentialsProvider", "BasicAWSCredentialsProvider"}
_DEFAULT = f"{_WITH_TOKEN},SimpleAWSCredentialsProvider"  # and then the environment
_WITH_ROLE = "AssumedRoleCredentialProvider"
_PROFILE = {"ProfileAWSCredentialsProvider", "ProfileCredentialsProvider"}
_ANONYMOUS = {"AnonymousAWSCredentialsProvider", "AnonymousCredentialsProvider", "AnonymousAWSCredentials"}
_ENVIRONMENT = {  # botocore looks there by itself
    "ContainerCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
    "DefaultCredentialsProvider",
    "EC2ContainerCredentialsProviderWrapper",
    "EnvironmentVariableCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "SharedInstanceCredentialProvider",
    "WebIdentityTokenCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
}


def credentials(builder: OptionsBuilder) -> None:
    """Takes the credentials of the first provider that has any, in S3A's order; but the environment comes last."""
    row = "aws.credentials.provider"
    behind_environment = False
    for name in filter(None, re.split(r"[\s,]+", builder.get(row) or _DEFAULT)):
        provider = class_name(name)
        if provider in _ENVIRONMENT:
            behind_environment = True
        elif provider not in _ANONYMOUS | _PROFILE | _WITH_KEY | {_WITH_TOKEN, _WITH_ROLE}:
            builder.ignore(row, f"{name} runs in Java only; {INSTEAD}")
        elif provider in _ANONYMOUS and behind_environment:
            builder.ignore(row, f"{name} comes after the environment, which dbio uses last; {INSTEAD}")
        elif _take(builder, provider):
            return


def _take(builder: OptionsBuilder, provider: str) -> bool:
    """Takes the credentials of this provider. Returns whether it has any."""
    if provider in _ANONYMOUS:
        builder.put("anon", value=True)
    elif provider in _PROFILE and (profile := builder.get("auth.profile.name")):
        builder.put("profile", value=profile)
    elif provider == _WITH_ROLE and (arn := builder.get("assumed.role.arn")):
        builder.role = _role(builder, arn)
    elif provider in _WITH_KEY | {_WITH_TOKEN}:
        found = {"key": builder.get("access.key"), "secret": builder.get("secret.key")}
        if provider == _WITH_TOKEN:
            found["token"] = builder.get("session.token")
        if not all(found.values()):
            return False
        builder.options |= found
    else:
        return False
    return True


def _role(builder: OptionsBuilder, arn: str) -> AssumedRole:
    sources = re.split(r"[\s,]+", builder.get("assumed.role.credentials.provider") or _DEFAULT)
    own = not _WITH_KEY.isdisjoint(map(class_name, sources))
    request: dict[str, str | int] = {
        "RoleArn": arn,
        "RoleSessionName": builder.get("assumed.role.session.name") or "dbio_commit",
        "DurationSeconds": _seconds(builder, "assumed.role.session.duration") or 1800,
    }
    for name, parameter in (("assumed.role.policy", "Policy"), ("assumed.role.external.id", "ExternalId")):
        if value := builder.get(name):
            request[parameter] = value
    endpoint = builder.get("assumed.role.sts.endpoint")
    return AssumedRole(
        request=request,
        endpoint=f"https://{endpoint}" if endpoint and "://" not in endpoint else endpoint,
        region=builder.get("assumed.role.sts.endpoint.region") or builder.get("endpoint.region"),
        key=builder.get("access.key") if own else None,
        secret=builder.get("secret.key") if own else None,
        proxies=_proxies(builder),
    )


def _seconds(builder: OptionsBuilder, name: str) -> int | None:
    """A duration as Hadoop writes it, in seconds."""
    text = builder.get(name)
    match = re.fullmatch(r"(\d+)\s*([smhd]?)", text.lower()) if text else None
    if text and not match:
        builder.refuse(name, "it is no time such as 30m", value=text)
    return int(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]] if match else None


# --- the service --------------------------------------------------------------------------------------------------

_CENTRAL = "s3.amazonaws.com"  # to S3A, the region of the bucket
_REGION = re.compile(r"(?:^|\.)s3(?:-fips)?(?:\.dualstack)?[.-]([a-z]{2}(?:-[a-z]+)+-\d)\.(?:vpce\.)?amazonaws\.com")


def _endpoint(builder: OptionsBuilder, name: str, value: str) -> None:
    host = urlsplit(value if "://" in value else f"//{value}").hostname or ""
    if host != _CENTRAL:
        plain = builder.is_false("connection.ssl.enabled")
        builder.put("endpoint_url", value=value if "://" in value else f"http{'' if plain else 's'}://{value}")
    if not builder.get("endpoint.region") and (match := _REGION.search(host)):
        builder.put("client_kwargs", "region_name", value=match[1])


def _region(builder: OptionsBuilder, name: str, value: str) -> None:
    if value not in ("sdk", "ec2"):  # to S3A, the region of the environment
        builder.put("client_kwargs", "region_name", value=value)


def _ssl(builder: OptionsBuilder, name: str, value: str) -> None:
    if builder.is_false(name) and "endpoint_url" not in builder.options:
        builder.put("use_ssl", value=False)


def _requester_pays(builder: OptionsBuilder, name: str, value: str) -> None:
    if builder.is_true(name):
        builder.put("requester_pays", value=True)
        # s3fs does not add it to all calls.
        builder.put("s3_additional_kwargs", "RequestPayer", value="requester")


def _proxy(builder: OptionsBuilder, name: str, value: str) -> None:
    builder.put("config_kwargs", "proxies", value=_proxies(builder))


def _proxies(builder: OptionsBuilder) -> dict[str, str]:
    if not (host := builder.get("proxy.host")):
        return {}
    port = builder.get("proxy.port") or ("80" if builder.is_false("connection.ssl.enabled") else "443")
    user, password = builder.get("proxy.username"), builder.get("proxy.password") or ""
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
    url = f"http{'s' if builder.is_true('proxy.ssl.enabled') else ''}://{login}{host}:{port}"
    return {"http": url, "https": url}


# --- what is stored -----------------------------------------------------------------------------------------------

_ALGORITHMS = {"AES256": "AES256", "SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse"}
_STORAGE_CLASSES = {
    "STANDARD": "STANDARD",
    "REDUCED_REDUNDANCY": "REDUCED_REDUNDANCY",
    "STANDARD_IA": "STANDARD_IA",
    "ONEZONE_IA": "ONEZONE_IA",
    "INTELLIGENT_TIERING": "INTELLIGENT_TIERING",
    "GLACIER_INSTANT_RETRIEVAL": "GLACIER_IR",
    "GLACIER_IR": "GLACIER_IR",
}
_ACLS = {
    "Private": "private",
    "PublicRead": "public-read",
    "PublicReadWrite": "public-read-write",
    "AuthenticatedRead": "authenticated-read",
    "AwsExecRead": "aws-exec-read",
    "BucketOwnerRead": "bucket-owner-read",
    "BucketOwnerFullControl": "bucket-owner-full-control",
}
_OVERRIDE = 'or give another value in storage_options={"s3_additional_kwargs": {…}}'


def _encryption(builder: OptionsBuilder, name: str, value: str) -> None:
    if builder.has_explicit("ServerSideEncryption", "SSECustomerAlgorithm"):
        return
    algorithm = _ALGORITHMS.get(value.upper())
    if not algorithm:
        known = ", ".join(_ALGORITHMS)
        builder.refuse(name, f"dbio does not know this encryption; take one of {known}, {_OVERRIDE}", value=value)
    builder.put("s3_additional_kwargs", "ServerSideEncryption", value=algorithm)
    key, context = builder.get("encryption.key"), builder.get("encryption.context")
    if key and algorithm != "AES256":
        builder.put("s3_additional_kwargs", "SSEKMSKeyId", value=key)
    if context and algorithm != "AES256":
        pairs = dict(pair.split("=", 1) for pair in re.split(r"\s*,\s*", context) if "=" in pair)
        encoded = b64encode(json.dumps(pairs).encode()).decode()
        builder.put("s3_additional_kwargs", "SSEKMSEncryptionContext", value=encoded)


def _one_of(values: Mapping[str, str], parameter: str, why: str) -> Apply:
    """Makes a value of S3A an argument of S3's requests."""
    known = {value.lower(): of_s3 for value, of_s3 in values.items()}

    def apply(builder: OptionsBuilder, name: str, value: str) -> None:
        if builder.has_explicit(parameter):
            return
        if value.lower() not in known:
            builder.refuse(name, f"{why}; take one of {', '.join(values)}, {_OVERRIDE}", value=value)
        builder.put("s3_additional_kwargs", parameter, value=known[value.lower()])

    return apply


def _access_point(builder: OptionsBuilder, name: str, value: str) -> None:
    if value.lower() != "false":
        builder.refuse(
            name, "requests would go to the bucket; name the access point's alias as the bucket, and unset it"
        )


_NTLM = "dbio logs in to proxies with a name and a password, not by NTLM"
_SIGNED = "botocore signs requests in its own way; if the store refuses that, give config_kwargs in storage_options"

ROWS = (
    Row("access.key", part, secret=True),
    Row("secret.key", part, secret=True),
    Row("session.token", part, secret=True),
    Row("aws.credentials.provider", part),
    Row("auth.profile.name", part),
    Row("auth.profile.file", ignored_credential("dbio reads AWS_SHARED_CREDENTIALS_FILE instead")),
    Row("assumed.role.arn", part),
    Row("assumed.role.session.name", part),
    Row("assumed.role.session.duration", part),
    Row("assumed.role.policy", part),
    Row("assumed.role.external.id", part),
    Row("assumed.role.sts.endpoint", part),
    Row("assumed.role.sts.endpoint.region", part),
    Row("assumed.role.credentials.provider", part),
    Row("delegation.token.binding", ignored_credential("only Hadoop can use delegation tokens")),
    Row("access.grants.enabled", ignored_credential("S3 Access Grants need a plug-in for Java")),
    Row("endpoint", _endpoint),
    Row("endpoint.region", _region),
    Row("endpoint.fips", if_true("config_kwargs", "use_fips_endpoint", value=True)),
    Row("connection.ssl.enabled", _ssl),
    Row("path.style.access", if_true("config_kwargs", "s3", "addressing_style", value="path")),
    Row("requester.pays.enabled", _requester_pays),
    Row("proxy.host", _proxy),
    Row("proxy.port", part),
    Row("proxy.username", part, secret=True),
    Row("proxy.password", part, secret=True),
    Row("proxy.ssl.enabled", part),
    Row("proxy.domain", ignored(_NTLM)),
    Row("proxy.workstation", ignored(_NTLM)),
    Row("signing-algorithm", ignored(_SIGNED)),
    Row("s3.signing-algorithm", ignored(_SIGNED)),
    Row("custom.signers", ignored(_SIGNED)),
    Row("encryption.algorithm", _encryption, ("server-side-encryption-algorithm",)),
    Row("encryption.key", part, ("server-side-encryption.key", "server-side-encryption-key"), secret=True),
    Row("encryption.context", part, secret=True),
    Row("create.storage.class", _one_of(_STORAGE_CLASSES, "StorageClass", "such objects cannot be read at once")),
    Row("create.checksum.algorithm", ignored("objects have the checksums that botocore chooses")),
    Row("acl.default", _one_of(_ACLS, "ACL", "it is unknown who could read what is stored")),
    Row("object.content.encoding", refused("dbio does not store an encoding with objects; unset it")),
    Row("accesspoint.arn", _access_point),
    Row("accesspoint.required", _access_point),
)
