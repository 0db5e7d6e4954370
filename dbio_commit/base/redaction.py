"""Finds the secrets in options, in the environment and in texts, and removes them from texts.

Clients of stores repeat their options in errors: in any encoding, and as parts of something larger.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, unquote_plus

SHORTEST = 8
"""The shortest secret that is searched for: a shorter text is too often part of another word."""

_NAME = re.compile(r"key|secret|token|passw|credential|connection_?string|signature|identity_header", re.IGNORECASE)
_NAME_OF_A_PLACE = re.compile(r"_(?:file|path|dir|ur[il])$", re.IGNORECASE)

_CLIENTS = ("AWS_", "AZURE_", "IDENTITY_", "MSI_")
"""The beginnings of the names of variables that the stores' clients read."""

_PROXIES = {"http_proxy", "https_proxy", "all_proxy"}

_NOT_SECRET = {
    *("account_name", "region_name", "profile", "addressing_style", "account_host", "signature_version", "mode"),
    *("ServerSideEncryption", "SSEKMSKeyId", "StorageClass", "ACL", "RequestPayer"),  # of requests to S3
    *("DefaultEndpointsProtocol", "AccountName", "EndpointSuffix"),  # of connection strings
    *("type", "project", "project_id", "quota_project_id", "client_email", "universe_domain"),  # of Google's
}


def is_secret_name(name: str) -> bool:
    """Whether an option or an environment variable of this name holds a secret; False for the path of a secret file."""
    return _NAME.search(name) is not None and _NAME_OF_A_PLACE.search(name) is None


def secrets_in(value: Any) -> set[str]:
    """The texts in the options that could be secrets; the parts of URLs, connection strings, headers and signatures."""
    return {part for text in _texts(value) for part in _parts(text) if len(part) >= SHORTEST}


def secrets_of_clients() -> set[str]:
    """The secrets that the environment holds for the clients of the stores."""
    found = {name: value for name, value in os.environ.items() if name.startswith(_CLIENTS) and is_secret_name(name)}
    proxies = (value for name, value in os.environ.items() if name.lower() in _PROXIES)
    return secrets_in(found) | {
        match[1] for value in proxies for match in _PASSWORD.finditer(value) if len(match[1]) >= SHORTEST
    }


def redact(text: str, secrets: Collection[str] = ()) -> str:
    """The text without these secrets, in any encoding, and without texts that have a known form of a secret."""
    if pattern := _pattern(frozenset(secrets)):
        text = pattern.sub("***", text)
    for known, shown in _KNOWN:
        text = known.sub(shown, text)
    return text


# --- among options ------------------------------------------------------------------------------------------------

_DEPTH = 4


def _texts(value: Any, depth: int = _DEPTH) -> Iterator[str]:
    match value:
        case str():
            yield value
        case bytes() | bytearray():
            yield value.decode(errors="replace")
        case Mapping():
            for name, it in value.items():
                if name not in _NOT_SECRET or not isinstance(it, str | bytes):
                    yield from _texts(it, depth)
        case list() | tuple() | set() | frozenset():
            for it in value:
                yield from _texts(it, depth)
        case None | int() | float():
            return
        case _ if depth:  # an object of a client, such as a credential or a session
            for name, it in _attributes(value).items():
                if is_secret_name(name) or (is_dataclass(it) and not isinstance(it, type)):
                    yield from _texts(it, depth - 1)


def _attributes(value: Any) -> Mapping[str, Any]:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return getattr(value, "__dict__", {})


_PASSWORD = re.compile(r"(?:^|//|[\s\"'=])[^\s/?#:@]*:([^\s/?#]+)@")
_SIGNATURE = re.compile(r"(?:^|[?&;])sig=([^&;\s]+)", re.IGNORECASE)
_HEADER = re.compile(r"[\w-]+:\s*(?=\S)(?!//)(.+)", re.DOTALL)
_SCHEME = re.compile(r"(?:Bearer|Basic|Token|SharedKey|SharedKeyLite)\s+(\S+)", re.IGNORECASE)


def _parts(text: str) -> Iterator[str]:
    """The text, unless it is a URL; and the secret parts of a larger text."""
    if "://" not in text:
        yield text
    if "PRIVATE KEY-----" in text:
        yield from (line for line in text.splitlines() if "-----" not in line)
    yield from (match[1] for match in _PASSWORD.finditer(text))
    for match in _SIGNATURE.finditer(text):
        yield from {match[1], unquote_plus(match[1])}
    for part in text.split(";"):
        name, _, value = part.partition("=")
        for it in (part, value) if name not in _NOT_SECRET else ():
            for larger in (_HEADER, _SCHEME):
                if found := larger.fullmatch(it):
                    it = found[1]
                    if "://" not in it:
                        yield it
        if value and name not in _NOT_SECRET and "://" not in value:
            yield value
        elif part and not value and "://" not in part:
            yield part


# --- in a text ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _pattern(secrets: frozenset[str]) -> re.Pattern[str] | None:
    forms = {form for secret in secrets for form in (secret, unquote(secret)) if form}
    if not forms:
        return None
    return re.compile("|".join(_in_any_encoding(form) for form in sorted(forms, key=len, reverse=True)))


def _in_any_encoding(secret: str) -> str:
    """A pattern for the text in which any character may be percent-encoded, also more than once."""

    def either(character: str) -> str:
        if character.isalnum() and character.isascii():
            return character
        encoded = "".join(f"%(?:25)*(?i:{byte:02x})" for byte in character.encode(errors="replace"))
        return f"(?:{re.escape(character)}|{encoded})"

    return "".join(map(either, secret))


_VALUE = r"[^\s&;,\"'<>\\]+"
_NAMES = (
    r"(?:account_?key|shared_?access_?key|(?:aws_?)?secret_?access_?key|(?:aws_?)?session_?token|client_?secret|"
    r"client_?assertion|(?:access|refresh|id|sas)_?token|upload_id|private_?key|password|passwd|x-amz-(?:signature|security-token)|signature|sig)"
)
_OF_SERVICES = (
    r"\b(?:gh[opsur]_[a-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|xox[a-z]-[\w-]{10,}|dapi[0-9a-f]{32}(?:-\d+)?|"
    r"pypi-[\w-]{50,}|hf_[a-z0-9]{30,}|sk-[a-z0-9]{32,})"
)
"""Tokens of services that begin with letters of their own, as of GitHub, GitLab, Slack, Databricks and PyPI."""

_KNOWN = [
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), shown)
    for pattern, shown in (
        (r"(?<![a-z0-9])(https?|socks[45]?[ah]?)://[^\s/?#\"'<>]+@", r"\1://***@"),
        (r"(?<![a-z0-9])([a-z][a-z0-9+.-]{1,30})://[^\s/?#:@\"'<>]*:[^\s/?#@\"'<>]+@", r"\1://***@"),
        (rf"((?:--|(?<![a-z0-9-]))(?:password|passwd|pwd)[\"']?\s*[:=]\s*[\"']?){_VALUE}", r"\1***"),
        (rf"(--password\s+){_VALUE}", r"\1***"),
        (_OF_SERVICES, "***"),
        (r"(authorization[\"']?\s*[:=]\s*[\"']?)[^\r\n\"'\\]+", r"\1***"),
        (r"\b(bearer\s+)(?=\S*[0-9.])(?!\w+=)[\w.~+/-]{8,}=*", r"\1***"),
        (r"(SharedAccessSignature=)[^\s;\"'<>\\]+", r"\1***"),
        (rf"((?<![a-z0-9]){_NAMES}=[\"']?){_VALUE}", r"\1***"),
        (rf"([\"']{_NAMES}[\"']\s*:\s*[\"'])[^\"'\\]+", r"\1***"),
        (r"(\bx-amz-security-token\s*:\s*)\S+", r"\1***"),
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", "***"),
        (r"\bya29\.[\w.~+/-]+", "***"),
        (r"\beyJ[\w-]{4,}\.[\w-]+(?:\.[\w-]*)?", "***"),
    )
]
