"""Finds the secrets in options, in the environment and in texts, and removes them from texts.

Clients of stores repeat their options in errors: in any encoding, and as parts of something larger. So each rule looks
at a text as it is, and with its escapes decoded, and finds where secrets lie. No rule changes what another one sees.
Texts often come from outside, so each rule takes time that is linear in their length.
"""

import html
import json
import os
import re
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any, cast
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
    """The texts in the options that could be secrets: values, and parts of URLs, connection strings, headers and
    signatures."""
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
    body = text.encode(errors="surrogatepass")
    shown, at = list[bytes](), 0
    for start, end in _joined(sorted(_secrets_of(body, _pattern(frozenset(secrets))))):
        shown += [body[at:start], b"***"]
        at = end
    return b"".join([*shown, body[at:]]).decode(errors="surrogatepass") if shown else text


def names_secret(name: str) -> bool:
    """Whether the value after this name in a text is a secret. Narrower than `is_secret_name`: many keys in texts are
    none."""
    return _SECRET_NAME.search(_in_words(name)) is not None


# --- among options ------------------------------------------------------------------------------------------------

_DEPTH = 4


def _texts(value: Any, depth: int = _DEPTH) -> Iterator[str]:
    match value:
        case str():
            yield from _texts(found, depth - 1) if depth and (found := _object(value)) else [value]
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


def _object(text: str) -> Mapping[str, Any]:
    """The JSON object in the text of a key file; empty if the text is none."""
    if text.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):
            return cast(Mapping[str, Any], json.loads(text))
    return {}


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

_Span = tuple[int, int]

_MOST_LEVELS = 4
"""How often a text may be escaped. JSON in JSON in a URL has three levels."""


@dataclass(frozen=True, slots=True)
class _View:
    """A text in UTF-8, as it is or with levels of escapes decoded."""

    body: bytes
    places: Sequence[int]
    """The place of each byte in the original text, and of the text's end."""


def _views(body: bytes) -> Iterator[_View]:
    """The text as it is, with one level of escapes decoded, with two, and so on."""
    yield (view := _View(body, range(len(body) + 1)))
    for _ in range(_MOST_LEVELS):
        if (next_view := _unescaped(view)) is None:
            return
        yield (view := next_view)


_ESCAPE = re.compile(
    rb"%(?:25)*(?P<byte>[0-9a-f]{2})"
    rb"|\\x(?P<hex>[0-9a-f]{2})"
    rb"|(?P<json>(?-i:\\u)(?:d[89ab][0-9a-f]{2}(?-i:\\u)d[c-f][0-9a-f]{2}|[0-9a-f]{4})|(?-i:\\[bfnrt]))"
    rb"|\\(?P<other>.)"
    rb"|(?P<xml>&(?:amp|quot|apos|lt|gt|#[0-9]{1,7}|#x[0-9a-f]{1,6});)",
    re.IGNORECASE | re.DOTALL,
)


def _unescaped(view: _View) -> _View | None:
    """The view with one level of escapes decoded; None if it has no escapes."""
    body, places, at = bytearray(), array("q"), 0
    for it in _ESCAPE.finditer(view.body):
        stands_for = _stands_for(it)
        body += view.body[at : it.start()] + stands_for
        places.extend(view.places[at : it.start()])
        places.extend([view.places[it.start()]] * len(stands_for))
        at = it.end()
    if not at:
        return None
    places.extend(view.places[at:])
    return _View(bytes(body + view.body[at:]), places)


def _stands_for(escape: "re.Match[bytes]") -> bytes:
    match escape.lastgroup:
        case "byte" | "hex" as digits:
            return bytes([int(escape[digits], 16)])
        case "json":
            return str(json.loads(b'"%s"' % escape["json"])).encode(errors="surrogatepass")
        case "xml":
            return html.unescape(escape["xml"].decode()).encode(errors="surrogatepass")
    return escape["other"]


def _joined(spans: Sequence[_Span]) -> Iterator[_Span]:
    """The sorted spans. Those that overlap or touch are joined."""
    first, last = spans[0] if spans else (0, 0)
    for start, end in spans:
        if start > last:
            yield first, last
            first = start
        last = max(last, end)
    if last > first:
        yield first, last


def _secrets_of(body: bytes, given: "re.Pattern[bytes] | None") -> Iterator[_Span]:
    """Where secrets lie in a text: texts with the form of a secret, and secrets that the caller gave."""
    for view in _views(body):
        for rule in (*_RULES, given) if given else _RULES:
            for it in rule.finditer(view.body):
                yield view.places[it.start(1)], view.places[it.end(1)]
        for start, end in _named(view.body):
            yield view.places[start], view.places[end]


@lru_cache(maxsize=64)
def _pattern(secrets: frozenset[str]) -> "re.Pattern[bytes] | None":
    """A pattern that finds each secret, also if they overlap."""
    forms = {form for it in secrets for form in (it, unquote(it), it.replace(" ", "+")) if form}
    each = sorted((form.encode(errors="surrogatepass") for form in forms), key=len, reverse=True)
    return re.compile(b"(?=(%s))" % b"|".join(map(re.escape, each))) if each else None


_OF_SERVICES = (
    rb"\b(gh[opsur]_[a-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|xox[a-z]-[\w-]{10,}|dapi[0-9a-f]{32}(?:-\d+)?|"
    rb"pypi-[\w-]{50,}|hf_[a-z0-9]{30,}|sk-[a-z0-9]{32,})"
)
"""Tokens that begin with letters of their service, such as GitHub, GitLab, Slack, Databricks and PyPI."""

_RULES = [
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        rb"(?<![a-z0-9])(?:https?|socks[45]?[ah]?)://([^\s/?#\"'<>]+)@",
        rb"(?<![a-z0-9])[a-z][a-z0-9+.-]{1,30}://([^\s/?#:@\"'<>]*:[^\s/?#@\"'<>]+)@",
        rb"\bbearer\s++(?=\S*[0-9.])(?!\w+=)([\w.~+/-]{8,}=*)",
        rb"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z))",
        rb"\b(ya29\.[\w.~+/-]+)",
        rb"(?<![\w-])(eyJ[\w-]{4,}+\.[\w-]++(?:\.[\w-]*+)?)",
        _OF_SERVICES,
    )
]
"""Patterns of secrets, each with the secret as its first group. To stay linear, none begins anew at each character that
it has read."""

# --- by a name in a text ------------------------------------------------------------------------------------------

_ONE_NAME = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_-]")
_NAME_BYTES = 200
"""Of a longer name, the last bytes count."""


def _in_words(name: str) -> str:
    """The name in lower case, with dots between its words."""
    return _ONE_NAME.sub(".", name[-_NAME_BYTES:]).lower()


_AT_AN_ACCOUNT = r"(?:(?:\.\w+){1,8}?\.(?:dfs|blob)\.[\w.]+)?$"
"""Hadoop appends the account in Azure to the names of settings."""

_PASSWORD_NAME = r"pass(?:word|wd|phrase|code)|(?:^|\.)pwd"
_SECRET_NAME = re.compile(
    rf"(?:{_PASSWORD_NAME}|secret|credentials?|signature|assertion|token|cookie|authorization|(?:^|\.)(?:sig|sas)"
    r"|(?:access|secret|account|private|api|customer|encryption|shared|storage|master|client)\.?key"
    rf"|upload\.?id|identity\.header){_AT_AN_ACCOUNT}"
)
_WHOLE_LINE_NAME = re.compile(r"(?:authorization|cookie)$")
_NO_WORD_OF_PROSE = re.compile(rf"(?:{_PASSWORD_NAME}|authorization|cookie)$")

_NAMED = re.compile(
    rb"(?<![\w.-])(?P<name>[\w.-]++)(?:(?P<quote>[\"']?)\s*+(?P<sign>[:=])\s*+"
    rb"|[\"']\s*+,\s*+(?=[bru]{0,2}[\"'])|(?P<space>\s++)|</name>\s*+<value>|(?P<xml>>))",
    re.IGNORECASE,
)
_QUOTED = re.compile(
    rb"[bru]{0,2}(?:\"(?P<double>(?:[^\"\\]|\\.)*+)|'(?P<single>(?:[^'\\]|\\.)*+))", re.IGNORECASE | re.DOTALL
)
_PLAIN = re.compile(rb"(?![{[(]|(?:none|null|true|false)\b)[^\s&;,\"'<>\\]+", re.IGNORECASE)
_LINE = re.compile(rb"[^\r\n\"'\\]+")
_IN_XML = re.compile(rb"[^<]+")
_IS_RANDOM = re.compile(rb"(?=\D*[0-9]).{8}", re.DOTALL)


def _named(body: bytes) -> Iterator[_Span]:
    """The values of names of secrets, as in `password=…`, `"access_token": "…"`, `--token …` and `<Secret>…`."""
    at = 0
    while it := _NAMED.search(body, at):
        at = it.end()
        if (it["space"] and not it["name"].startswith(b"--")) or (it["xml"] and body[it.start() - 1 :][:1] != b"<"):
            continue
        if _SECRET_NAME.search(name := _in_words(it["name"].decode())):
            start, at = _value(body, at, it, name)
            if at > start:
                yield start, at


def _value(body: bytes, at: int, it: "re.Match[bytes]", name: str) -> _Span:
    """Where the secret value lies that begins at `at`. An empty span if prose follows, as in "InvalidToken: The"."""
    if found := _QUOTED.match(body, at):
        return found.span(found.lastgroup or 0)
    form = _IN_XML if it["xml"] else _LINE if _WHOLE_LINE_NAME.search(name) else _PLAIN
    found = form.match(body, at)
    may_be_prose = (
        it["sign"] == b":" and not it["quote"] and it["name"].isalpha() and not _NO_WORD_OF_PROSE.search(name)
    )
    if found is None or (may_be_prose and not _IS_RANDOM.match(found[0])):
        return at, at
    return found.span()
