"""Drops the metadata of recorded columns, except for their comments. Pure.

Schemas come from outside, and engines act on other metadata. Spark evaluates `EXISTS_DEFAULT` as SQL if a file lacks
the column, and pads texts because of `__CHAR_VARCHAR_TYPE_STRING`. In a Delta log, keys with `delta.` change how files
are read.
"""

from typing import Any


def known(metadata: Any) -> dict[str, str]:
    """The comment in the metadata of a column or field; all else is dropped."""
    comment = metadata.get("comment") if isinstance(metadata, dict) else None
    return {"comment": comment} if isinstance(comment, str) else {}


def keep_known(schema: Any) -> Any:
    """The schema in Spark's JSON, changed in place to keep only comments as metadata."""
    waiting = [schema]
    while waiting:  # no recursion: a schema may be deeper than what is left of Python's stack
        part = waiting.pop()
        if isinstance(part, dict):
            if "metadata" in part:
                part["metadata"] = known(part["metadata"])
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return schema
