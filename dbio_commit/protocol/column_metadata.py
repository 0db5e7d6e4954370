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


def with_known(part: Any) -> Any:
    """A schema in Spark's JSON, or a part of one, with the metadata of its columns and fields that is known."""
    if isinstance(part, dict):
        return {key: known(it) if key == "metadata" else with_known(it) for key, it in part.items()}
    return [with_known(it) for it in part] if isinstance(part, list) else part
