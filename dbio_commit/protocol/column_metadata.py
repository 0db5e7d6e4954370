"""What a recorded column may say besides its name and its type: a comment, and nothing else. Pure.

Schemas come from outside. Engines take other metadata for more than words: Spark evaluates `EXISTS_DEFAULT` as SQL
where a file lacks the column, and pads a text by `__CHAR_VARCHAR_TYPE_STRING`; in a Delta log, `delta.` keys say how
files are to be read.
"""

from typing import Any


def known(metadata: Any) -> dict[str, str]:
    """Of a column's metadata, or of a field's, the comment."""
    comment = metadata.get("comment") if isinstance(metadata, dict) else None
    return {"comment": comment} if isinstance(comment, str) else {}


def keep_known(schema: Any) -> Any:
    """The schema in Spark's JSON, which loses all other metadata of its columns and fields."""
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
