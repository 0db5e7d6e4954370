"""The bodies of markers and checkpoints, and names: whole, broken and damaged ones. Rules: PROTOCOL.md 7."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dbio_commit.protocol.checkpoint import decode_checkpoint
from tests.fuzz import bodies, properties

many = settings(max_examples=300)
PATHS = st.sampled_from(bodies.HOSTILE_PATHS) | st.sampled_from(bodies.PATHS)
SOME = st.lists(PATHS, max_size=4)


@given(bodies.commits())
def test_the_generators_make_commits_that_are_accepted(body: dict[str, Any]) -> None:
    marker = properties.commit(bodies.to_json(body))
    assert marker is not None
    assert (marker.added, marker.removed) == (body["added"], body["removed"])


@given(bodies.checkpoints())
def test_the_generators_make_checkpoints_that_are_accepted(lines: list[dict[str, Any]]) -> None:
    commits = properties.checkpoint(bodies.pack(bodies.to_lines(lines)))
    assert commits is not None
    assert [commit.tid for commit in commits] == [line["tid"] for line in lines[1:]]


@given(bodies.descriptors(), bodies.turns(), bodies.queues())
def test_the_generators_make_small_bodies_that_are_accepted(descriptor: Any, turn: Any, queue: Any) -> None:
    assert properties.descriptor(bodies.to_json(descriptor))
    assert properties.turn(bodies.to_json(turn))
    assert properties.commit(bodies.to_json(queue))


@many
@given(bodies.bodies(bodies.commits() | bodies.queues()))
def test_a_commit_marker_or_queue_is_read_or_refused(body: bytes) -> None:
    properties.commit(body)


@given(SOME, SOME)
def test_a_commit_marker_with_any_paths_names_only_paths_inside_the_table(added: list[str], removed: list[str]) -> None:
    marker = properties.commit(json.dumps({"added": added, "removed": removed}).encode())
    assert marker is None or (marker.added, marker.removed) == (added, removed)


@given(bodies.bodies(bodies.descriptors()))
def test_a_descriptor_is_read_or_refused(body: bytes) -> None:
    properties.descriptor(body)


@given(bodies.bodies(bodies.turns()))
def test_a_turn_is_read_or_refused(body: bytes) -> None:
    properties.turn(body)


@many
@given(bodies.packed(bodies.checkpoints()))
def test_a_checkpoint_is_read_or_refused(body: bytes) -> None:
    properties.checkpoint(body)


@given(bodies.roots())
def test_the_generators_make_roots_that_are_accepted(lines: list[dict[str, Any]]) -> None:
    found = decode_checkpoint(bodies.pack(bodies.to_lines(lines)), number=1, where=properties.WHERE)
    assert [part.name for part in found.parts] == [part["name"] for part in lines[0]["parts"]]


@many
@given(bodies.packed(bodies.roots()))
def test_a_root_is_read_or_refused(body: bytes) -> None:
    properties.checkpoint(body)


@given(bodies.packed(bodies.checkpoints(paths=SOME)))
def test_a_checkpoint_with_any_paths_names_only_paths_inside_the_table(body: bytes) -> None:
    properties.checkpoint(body)


@given(bodies.bodies(bodies.commits() | bodies.descriptors() | bodies.turns()) | bodies.packed(bodies.checkpoints()))
def test_a_body_under_another_name_is_read_or_refused(body: bytes) -> None:
    properties.commit(body)
    properties.descriptor(body)
    properties.turn(body)
    properties.checkpoint(body)
    properties.checkpoint(bodies.pack(body))


# --- names --------------------------------------------------------------------------------------------------------

PIECES = st.sampled_from([
    "_", "_started_", "_committed_", "_committed_vacuum", "_serial_", "_checkpoint_", "_dbio_table", "0" * 20, "1" * 20,
    "1", "9" * 19, "a", "A", "é", "-tid-", "-", "part-00000-tid-42-", ".", "..", "/", "=", "%", "%2F", "%zz", "\\",
    "\n", "\0", "\x7f", "\ud800", "._COPYING_", "__HIVE_DEFAULT_PARTITION__", "day=", "²", "٣", " ", "\u202e",
])  # fmt: skip
NEAR_NAMES = st.lists(PIECES | st.text(max_size=2), max_size=8).map("".join)


@many
@given(NEAR_NAMES | st.text() | PATHS)
def test_a_name_is_a_marker_or_data_or_neither_and_never_both(text: str) -> None:
    properties.name(text)


@many
@given(NEAR_NAMES | st.text() | PATHS | st.lists(NEAR_NAMES, max_size=4).map("/".join))
def test_a_path_is_inside_the_table_or_refused_alone_and_among_others(text: str) -> None:
    properties.path(text)
