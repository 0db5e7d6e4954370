"""Two versions of this package at work on one table: each reads what the other wrote, or refuses by name."""

import json
import random
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.fleet import ROOT, THIS, Installation, Libraries, Machine, Refused, install

EACH = ["of this environment", *(pytest.param(it, marks=pytest.mark.long) for it in ("newest", "lowest"))]


@pytest.fixture(scope="module", params=EACH)
def libraries(request: pytest.FixtureRequest) -> Libraries:
    """What the earlier version runs with. The newest and the lowest come from the index."""
    found: Libraries = request.param
    return found


@pytest.fixture(scope="module")
def old(libraries: Libraries, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return install(tmp_path_factory.mktemp("old"), libraries)


@pytest.fixture(scope="module")
def machines(old: Installation) -> Iterator[list[Machine]]:
    """One with the earlier version, and one with this version."""
    with Machine(old) as earlier, Machine(THIS) as this:
        yield [earlier, this]


def test_the_code_that_runs_is_that_of_each_environment(
    machines: list[Machine], old: Installation, libraries: Libraries, tmp_path: Path
) -> None:
    for machine in machines:
        machine.ask("write", str(tmp_path / "table"), "append", [1])
        assert machine.ask("vacuum", str(tmp_path / "table")) == []  # which imports more modules
    earlier, this = (machine.ask("code") for machine in machines)
    assert len(earlier["modules"]) > 100
    assert all(Path(module).is_relative_to(old.packages) for module in earlier["modules"])
    assert all(Path(module).is_relative_to(ROOT) for module in this["modules"])
    assert not {str(ROOT), str(ROOT / "tests")} & {*earlier["path"]}
    assert old.differences() == [], "what is installed is not the commit"
    assert old.archive
    installed = json.loads(earlier["installed from"])
    assert installed["url"] == old.archive.as_uri()
    assert installed["archive_info"]["hash"] == f"sha256={sha256(old.archive.read_bytes()).hexdigest()}"
    is_apart = Path(earlier["libraries"]).is_relative_to(old.packages)
    assert is_apart == (libraries != "of this environment")
    if libraries == "lowest":
        assert earlier["pyarrow"] != this["pyarrow"]


class Model:
    """What the table should hold, state by state."""

    def __init__(self) -> None:
        self.ids: frozenset[int] = frozenset()
        self.states: dict[str, frozenset[int]] = {}
        self.next_id = 0

    def more(self) -> list[int]:
        self.next_id += 3
        return [*range(self.next_id - 3, self.next_id)]

    def after(self, tid: str, ids: frozenset[int]) -> None:
        self.ids = self.states[tid] = ids


def act(machine: Machine, path: str, model: Model, choices: random.Random) -> None:
    """One act of a random kind."""
    match choices.choice(["append", "append", "overwrite", "overwrite_partitions", "remove", "restore", "checkpoint"]):
        case "append":
            ids = model.more()
            model.after(machine.ask("write", path, "append", ids), model.ids | {*ids})
        case "overwrite":
            ids = model.more()
            model.after(machine.ask("write", path, "overwrite", ids), frozenset(ids))
        case "overwrite_partitions":
            ids = [2 * id for id in model.more()]
            model.next_id = 2 * model.next_id
            kept = {id for id in model.ids if id % 2}
            model.after(machine.ask("write", path, "overwrite_partitions", ids), frozenset(kept | {*ids}))
        case "remove":
            kept = {id for id in model.ids if not id % 2}
            model.after(machine.ask("remove", path, "d1"), frozenset(kept))
        case "restore":
            tid = choices.choice([*model.states])
            model.after(machine.ask("restore", path, tid), model.states[tid])
        case "checkpoint":
            machine.ask("checkpoint", path)


@pytest.mark.long_for("of this environment-2")
@pytest.mark.parametrize("form", ["one body", "tiny parts"])
@pytest.mark.parametrize("seed", [1, 2])
def test_both_versions_see_every_state_that_either_of_them_made(
    machines: list[Machine], tmp_path: Path, seed: int, form: str
) -> None:
    choices, path, model = random.Random(seed), str(tmp_path / "table"), Model()
    if form == "tiny parts":
        for machine in machines:
            machine.ask("tiny_parts")
    model.after(machines[seed % 2].ask("write", path, "append", ids := model.more()), frozenset(ids))
    for step in range(14):
        act(choices.choice(machines), path, model, choices)
        found = [machine.ask("ids", path) for machine in machines]
        assert found == [sorted(model.ids)] * 2, f"seed {seed}, step {step}"
    tid = choices.choice([*model.states])
    assert [machine.ask("ids", path, tid) for machine in machines] == [sorted(model.states[tid])] * 2
    assert machines[0].ask("history", path) == machines[1].ask("history", path)
    assert [machine.ask("sound", path) for machine in machines] == [True, True]
    for machine in choices.sample(machines, 2):
        assert machine.ask("vacuum", path) == []
        assert [it.ask("ids", path) for it in machines] == [sorted(model.ids)] * 2


@pytest.mark.parametrize("vacuuming", [0, 1])
def test_a_vacuum_of_one_version_aborts_a_pending_write_of_the_other(
    machines: list[Machine], tmp_path: Path, vacuuming: int
) -> None:
    path, writer = str(tmp_path / "table"), machines[1 - vacuuming]
    writer.ask("write", path, "append", [1, 2])
    number = writer.ask("begin", path, "append", [3])
    assert machines[vacuuming].ask("vacuum", path) == []
    with pytest.raises(Refused) as caught:
        writer.ask("commit", number)
    assert caught.value.name == "TransactionAbortedError"
    assert [machine.ask("ids", path) for machine in machines] == [[1, 2]] * 2


def test_settings_of_one_version_hold_for_writes_of_the_other(machines: list[Machine], tmp_path: Path) -> None:
    path, (old, new) = str(tmp_path / "table"), machines
    old.ask("write", path, "append", [1, 2])
    for machine, other, name in ((old, new, "check.small"), (new, old, "check.smaller")):
        machine.ask("settle", path, name, "id < 100")
        with pytest.raises(Refused) as caught:
            other.ask("write", path, "append", [100])
        assert name in str(caught.value) or "check.small" in str(caught.value)


def test_overwrites_of_two_versions_that_overlap_come_one_after_the_other(
    machines: list[Machine], tmp_path: Path
) -> None:
    path = str(tmp_path / "table")
    machines[0].ask("write", path, "append", [1])
    numbers = [machine.ask("begin", path, "overwrite", [10 + i]) for i, machine in enumerate(machines)]
    for number, machine in reversed([*zip(numbers, machines, strict=True)]):
        machine.ask("commit", number)
    assert [machine.ask("ids", path) for machine in machines] == [[10]] * 2


@pytest.mark.parametrize("state", ["decided", "undecided"])
def test_an_earlier_version_refuses_to_end_a_joint_transaction_that_it_does_not_know(
    machines: list[Machine], tmp_path: Path, state: str
) -> None:
    old, new = machines
    home, other = str(tmp_path / "home"), str(tmp_path / "other")
    for path in (home, other):
        new.ask("write", path, "append", [1, 2])
    new.ask(state, home, other, [3, 4])
    assert old.ask("ids", other) == [1, 2]
    for path in (home, other):
        with pytest.raises(Refused) as caught:
            old.ask("write", path, "overwrite", [9])
        assert caught.value.name == "UnsupportedTableError"
    if state == "decided":
        for act in ("ids", "vacuum", "checkpoint"):
            with pytest.raises(Refused) as caught:
                old.ask(act, home)
            assert caught.value.name == "UnsupportedTableError"
    for path in (other, home):
        assert new.ask("vacuum", path) == []
    expected = [1, 2, 3, 4] if state == "decided" else [1, 2]
    assert [new.ask("ids", path) for path in (home, other)] == [expected] * 2
    assert new.ask("sound", other)
