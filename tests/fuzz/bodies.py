"""Bodies as writers write them, as JSON values, and what can become of such a body on its way to us.

`broken` changes what the JSON says, `damaged` changes bytes. What must hold of the result is in `properties`.
"""

import gzip
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

STAMP = "2026-11-20T10:00:00Z"
TIDS = ["1", "2", "3a", "3764747161343079266"]


def data(tid: str, number: int = 0) -> str:
    return f"part-0000{number}-tid-{tid}-6def5b7b-0608-4299-b0fd-163011e8c988-0-{number}-c000.snappy.parquet"


NAMES = [*(data(tid, number) for tid in TIDS for number in (0, 1)), "untracked.parquet"]
DIRECTORIES = ["", "day=1/", "day=2/"]
PATHS = [directory + name for directory in DIRECTORIES for name in NAMES]

HOSTILE_PATHS = [
    "", "/", "/x", "//x", "../x", "a/../x", "a/..", "..", ".", "./x", "a/./x", "a//b", "a/", "a\\b", "..\\x", "C:\\x",
    "a\nb", "a\n", "\n", "\0", "a\0", "\x1b[2J", "\x7f", "a" * 5000, "a/" * 3000, "%2e%2e/x", "..%2fx", "．．/x",
    "‥/x", "a\u2215..\u2215x", "\ud800", "a/\udfff", "~", "~root/x", "s3://other/x", "file:///x", "day=1/../../x",
    "_dbio_table", "_committed_1", "_started_1", ".hidden", "_hidden/x", "day=1/_x", "\u202ex", "\x85", "x ", " ",
]  # fmt: skip

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {"EXISTS_DEFAULT": "current_user()"}},
        {"name": "price", "type": "decimal(10,2)", "nullable": True, "metadata": {"comment": "in €"}},
        {"name": "tags", "type": {"type": "array", "elementType": "string", "containsNull": True}, "nullable": True,
         "metadata": {}},
        {"name": "of", "type": {"type": "map", "keyType": "string", "valueType": "date", "valueContainsNull": True},
         "nullable": True, "metadata": {}},
        {"name": "day", "type": {"type": "struct", "fields": [
            {"name": "at", "type": "timestamp_ntz", "nullable": True, "metadata": {"comment": 7}}]}, "nullable": True,
         "metadata": {}},
    ],
}  # fmt: skip

SETTINGS = st.none() | st.sampled_from(
    [
        {},
        {"publish": "delta"},
        {"publish": "spark,symlink", "of a later one": "é"},
        {"partition_columns": '["day"]'},
        {"partition_columns": "[]"},
    ]
)

# --- as writers write them ----------------------------------------------------------------------------------------

TID = st.sampled_from(TIDS)
SOME_PATHS = st.lists(st.sampled_from(PATHS), max_size=3, unique=True)


@st.composite
def commits(draw: st.DrawFn, paths: st.SearchStrategy[list[str]] = SOME_PATHS) -> dict[str, Any]:
    """Of ours, of an abort, or of another DBIO writer."""
    kind = draw(st.sampled_from(["ours", "ours", "theirs", "abort"]))
    if kind == "abort":
        info = {"version": 1, "operation": "abort", "commit_id": "c", "timestamp": STAMP, "metrics": {}}
        return {"added": [], "removed": [], "dbio_commit": info}
    body: dict[str, Any] = {"added": draw(paths), "removed": draw(paths)}
    if kind == "ours":
        count = len(body["added"])
        files: dict[str, Any] = {
            "size": [draw(st.integers(0, 9)) for _ in range(count)],
            "rows": [draw(st.none() | st.integers(0, 9)) for _ in range(count)],
            "partition": {"day": [None, "1", "x"][:count]} if count <= 3 and draw(st.booleans()) else {},
            "statistics": {"id": {"min": [1] * count, "max": [9] * count, "nulls": [0] * count}},
        }
        body["dbio_commit"] = {
            "version": 1,
            "operation": draw(st.sampled_from(["append", "overwrite", "replace_partitions", "rewrite"])),
            "commit_id": "c",
            "timestamp": STAMP,
            "turn": draw(st.none() | st.integers(1, 3)),
            "app": draw(st.none() | st.just({"id": "nightly", "version": 7})),
            "metrics": {"numFiles": count},
            "schema": draw(st.sampled_from([SCHEMA, None])),
            "schema_turn": draw(st.none() | st.integers(0, 3)),
            "settings": draw(SETTINGS),
            "files": files,
        }
    return body


def descriptors() -> st.SearchStrategy[dict[str, Any]]:
    columns = st.sampled_from([[], ["day"], ["day", "hour"], ["é x"]])
    return st.builds(
        lambda columns: {
            "version": 1, "id": "t", "created": STAMP, "partition_columns": columns, "properties": {"a": "b"},
        },
        columns,
    )  # fmt: skip


def turns() -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda tid: {"tid": tid}, TID)


def queues() -> st.SearchStrategy[dict[str, Any]]:
    markers = [f"_{kind}_{tid}" for kind in ("started", "committed", "committed_vacuum") for tid in TIDS]
    listed = st.lists(st.sampled_from([*markers, *NAMES]), max_size=4)
    return st.builds(lambda removed: {"added": [], "removed": removed}, listed)


@st.composite
def checkpoints(
    draw: st.DrawFn, number: int = 1, paths: st.SearchStrategy[list[str]] = SOME_PATHS
) -> list[dict[str, Any]]:
    """The lines."""
    tids = draw(st.lists(TID, max_size=3, unique=True))
    lines: list[dict[str, Any]] = []
    for tid in tids:
        marker = draw(commits(paths))
        info = marker.get("dbio_commit")
        line: dict[str, Any] = {"tid": tid, "modified": STAMP, "marker": marker}
        if info and info.pop("schema", None):
            line["table_schema"] = 0
        if draw(st.booleans()):
            line |= {"forgotten_added": draw(st.integers(0, 3)), "forgotten_removed": draw(st.integers(0, 3))}
        lines.append(line)
    header = {
        "version": 1, "number": number, "created": STAMP, "commits": len(lines), "apps": {"nightly": 7},
        "schemas": [SCHEMA], "table_schema": draw(st.none() | st.just(0)), "schema_turn": draw(st.integers(0, 3)),
        "settings": draw(SETTINGS), "known_since": draw(st.none() | st.just(STAMP)),
    }  # fmt: skip
    return [header, *lines]


PART = "_part_" + "0" * 19 + "1-" + "0" * 31


@st.composite
def roots(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The line of a checkpoint whose transactions are in parts."""
    [header, *_] = draw(checkpoints(paths=st.just([])))
    numbers = iter(range(10))

    def part(kind: str) -> dict[str, Any]:
        key = [["day=1", ""], ["day=2", "1"]] if kind == "files" else [[], []]
        groups = [
            {"first": first, "rows": 5, "at": at, "bytes": 10, "crc": 7} for first, at in zip(key, (4, 14), strict=True)
        ]
        told = {"name": f"{PART}{next(numbers)}", "bytes": 99, "footer": 60, "crc": 1}
        found = {**told, "kind": kind, "since": 1, "until": 1, "groups": groups, "last": key[1]}
        if kind == "files" and draw(st.booleans()):
            found["statistics"] = {**told, "name": f"{PART}{next(numbers)}"}
        return found

    kinds = st.lists(st.sampled_from(["files", "commits"]), max_size=2)
    dropped = [{"part": part(kind), "into": [f"{PART}9"], "by": 1, "at": STAMP} for kind in draw(kinds)]
    state = {"files": 3, "bytes": 99, "unknown": 0, "layouts": [["day"]], "absent": [], "hides": False}
    return [
        {
            **header,
            "version": 2,
            "commits": 0,
            "parts": [part("files"), *map(part, draw(kinds))],
            "dropped": dropped,
            "cuts": draw(st.sampled_from([[], [["day=1", ""], ["day=1", "1"]]])),
            "state": state,
        }
    ]


# --- what the JSON says, changed ----------------------------------------------------------------------------------


class Raw(str):
    """Stands for itself in the text, whether or not it is JSON."""


class Pairs(list[tuple[str, Any]]):
    """An object whose keys may come twice."""


NUMBERS: list[Any] = [
    0, -1, 1, 1.0, 1.5, -0.0, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**400, 1e308, True,
    Raw("NaN"), Raw("-Infinity"), Raw("1e999"), Raw("-1e-999"), Raw("9" * 5000), Raw("0." + "3" * 5000), Raw("01"),
]  # fmt: skip
TEXTS: list[Any] = [
    "", " ", "a", "é", "\0", "\n", "null", "1", "abort", "adopt", "append", "\u202e", "\U0010ffff", "x" * 5000,
    Raw('"\\ud800"'), Raw('"\\udc00\\ud800"'), Raw('"\\u0000"'), Raw('"\ud800"'), Raw('"\\x"'), Raw('"'),
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-11-20T10:00:00", "2026-11-20", "24:00",
    "2026-11-20T10:00:60Z", "+002026-11-20T10:00:00Z", "2026-11-20T10:00:00.1234567891Z", "0000-00-00T00:00:00Z",
]  # fmt: skip
DEEP: list[Any] = [
    Raw(opening * depth + closing * depth) for opening, closing in ("[]", ('{"a":', "}")) for depth in (50, 190, 300)
]
HOSTILE: list[Any] = [
    None, [], {}, [[]], [None], {"": None}, *NUMBERS, *TEXTS, *DEEP, *HOSTILE_PATHS, [1, "a"], ["a"] * 3, Raw(""),
]  # fmt: skip

_CONFUSABLE = str.maketrans("aeopcxi", "аеорсхі")  # Cyrillic

NEW_KEYS = ["", "a", "é", "\0", "__proto__", "version"]
KEY_CHANGES: list[Callable[[str], str]] = [
    lambda key: key.translate(_CONFUSABLE),
    str.upper,
    lambda key: key + " ",
    lambda key: key + "\0",
    lambda key: "\u200b" + key,
    lambda key: key.replace("_", "-"),
    lambda key: "",
]


@st.composite
def broken(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> Any:
    """The value with up to four changes: a type swapped, a key dropped, doubled, or one that only looks the same."""
    value, chance = draw(values), draw(st.randoms(use_true_random=False))
    for _ in range(draw(st.integers(1, 4))):
        value = changed(chance, value)
    return value


def _with_pairs(value: Any) -> Any:
    if isinstance(value, dict):
        return Pairs((key, _with_pairs(inner)) for key, inner in value.items())
    if isinstance(value, Pairs):
        return value
    return [_with_pairs(inner) for inner in value] if isinstance(value, list) else value


def changed(chance: Random, value: Any) -> Any:
    """One change, somewhere inside: the deeper, the less often the whole is lost."""
    value = _with_pairs(value)
    hostile = chance.choice(HOSTILE)
    if not isinstance(value, list) or chance.randrange(10) == 0:
        return hostile
    new = (chance.choice(NEW_KEYS), hostile) if isinstance(value, Pairs) else hostile
    if not value:
        return type(value)([new])
    at = chance.randrange(len(value))
    item = value[at]
    put: list[Any]
    match chance.choice(["inside", "inside", "inside", "drop", "double", "add", "key"]):
        case "inside":
            inner = changed(chance, item[1] if isinstance(value, Pairs) else item)
            put = [(item[0], inner)] if isinstance(value, Pairs) else [inner]
        case "drop":
            put = []
        case "double":
            put = [item, (item[0], hostile)] if isinstance(value, Pairs) else [item, item]
        case "add":
            put = [item, new]
        case _:
            change = chance.choice(KEY_CHANGES)
            put = [(change(item[0]), item[1])] if isinstance(value, Pairs) else [hostile]
    return type(value)([*value[:at], *put, *value[at + 1 :]])


def to_json(value: Any) -> bytes:
    """Compact; a lone surrogate becomes the bytes that WTF-8 gives it."""
    return _text(value).encode(errors="surrogatepass")


def _text(value: Any) -> str:
    match value:
        case Raw():
            return str(value)
        case Pairs():
            return "{" + ",".join(f"{json.dumps(key)}:{_text(inner)}" for key, inner in value) + "}"
        case dict():
            return _text(Pairs(value.items()))
        case list():
            return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value)


def to_lines(lines: Any) -> bytes:
    """A checkpoint, before it is packed."""
    return b"".join(to_json(line) + b"\n" for line in (lines if isinstance(lines, list) else [lines]))


def pack(lines: bytes) -> bytes:
    return gzip.compress(lines, 1, mtime=0)


def unpack(body: bytes) -> bytes:
    return gzip.decompress(body)


# --- bytes, changed -----------------------------------------------------------------------------------------------

SPLICES = [
    b"\0", b"\n", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b'"', b"{", b"}", b"[", b"]", b",", b"../", b"null",
    b"1e999", b"\\u0000", b"\\ud800", b"/*", b"PAR1",
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, bodies: st.SearchStrategy[bytes]) -> bytes:
    """Cut off, doubled, overwritten or spliced, up to three times."""
    body = draw(bodies)
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted((draw(st.integers(0, len(body))), draw(st.integers(0, len(body)))))
        end = min(end, start + draw(st.sampled_from([0, 1, 4, 1 << 30])))
        match draw(st.sampled_from(["cut", "double", "put", "noise"])):
            case "cut":
                middle = b""
            case "double":
                middle = body[start:end] * 2
            case "put":
                middle = draw(st.sampled_from(SPLICES))
            case _:
                middle = draw(st.binary(max_size=8))
        body = body[:start] + middle + body[end:]
    return body


def bodies(values: st.SearchStrategy[Any], encode: Callable[[Any], bytes] = to_json) -> st.SearchStrategy[bytes]:
    """Whole, broken, or damaged."""
    return st.one_of(
        values.map(encode),
        broken(values).map(encode),
        damaged(values.map(encode)),
        damaged(broken(values).map(encode)),
    )


def packed(lines: st.SearchStrategy[Sequence[Any]]) -> st.SearchStrategy[bytes]:
    """Checkpoints, changed before or after they are packed."""
    good = lines.map(to_lines)
    return bodies(lines, to_lines).map(pack) | damaged(good.map(pack))
