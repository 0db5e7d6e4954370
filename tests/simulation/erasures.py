"""Somebody who erases rows beside all others, with the package's own code: nothing of them may be left.

The files of the simulation are no Parquet, so a finder of its own looks for the rows in their bytes. Rules: PROTOCOL.md
10.6.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from dbio_commit.base.errors import DbioError, InvalidInputError, ObjectNotFoundError
from dbio_commit.maintenance.copy import copy_table
from dbio_commit.maintenance.erase.run import erase
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.state import DataFile
from dbio_commit.store import Store
from dbio_commit.testing import MemoryStore

from .actors import Act, Stage, give_up, table_of, tolerant
from .model import Asked, Model, rows_in
from .world import HOUR_S, Actor, Violation, World


class RowFinder:
    """Stands for `erase.find.Finder`: the condition is a list of rows."""

    columns = ("row",)

    def __init__(self, store: Store, schema: object, where: str, time_zone: str | None) -> None:
        self._store, self._rows = store, frozenset(where.encode().split())

    def by_facts(self, files: Sequence[DataFile], commits: object) -> Sequence[DataFile]:
        return files

    def by_rows(self, files: Sequence[DataFile]) -> list[DataFile]:
        return [file for file in files if self._may_hold(file)]

    def _may_hold(self, file: DataFile) -> bool:
        try:
            return not self._rows.isdisjoint(rows_in(self._store.get(file.path)))
        except ObjectNotFoundError:
            return True

    def names_values(self, layouts: object) -> bool:
        return False


def eraser(stage: Stage, *, erasures: int, naps_s: Sequence[float] = (0.5, 60.0, 300.0, HOUR_S)) -> Act:
    """Somebody who erases some rows, and tries again while it fails or something is pending."""

    def act(world: World, actor: Actor) -> None:
        for _ in range(erasures):
            actor.clock.sleep(world.random.choice(naps_s))
            model = stage.model
            assert isinstance(model, Model)
            known = sorted({row for it in model.decided.values() for path in it.added for row in model.rows_of(path)})
            if known:
                rows = frozenset(world.random.sample(known, min(len(known), world.random.randint(1, 3))))
                _erase(stage, model, world, actor, rows, naps_s=naps_s)

    return tolerant(act)


def _erase(
    stage: Stage, model: Model, world: World, actor: Actor, rows: frozenset[bytes], *, naps_s: Sequence[float]
) -> None:
    where = b" ".join(sorted(rows)).decode()
    world.note(actor.name, f"erases the rows {where}")
    model.erasing[actor.name] = rows
    for _ in range(4):
        try:
            report = erase(world.store, actor.clock, where, delete=partial(_delete, stage, world, actor, rows))
        except InvalidInputError as error:  # no columns are recorded yet
            return give_up(world, actor, "cannot erase", error)
        except DbioError as error:
            give_up(world, actor, "cannot erase", error)
        else:
            if report.ok:
                world.note(actor.name, f"erased: {len(report.deleted)} deleted")
                world.happened("rows were erased")
                return model.check_erased(rows, looked=actor.looked)
            world.happened("an erasure was not complete")
        actor.clock.sleep(world.random.choice(naps_s))
    return None


def publisher(stage: Stage, *, publications: int, naps_s: Sequence[float] = (0.5, 60.0, 300.0)) -> Act:
    """Somebody who publishes the table, and may stand still in between."""

    def act(world: World, actor: Actor) -> None:
        for _ in range(publications):
            actor.clock.sleep(world.random.choice(naps_s))
            try:
                if table_of(world, actor).publish(world.random.choice(("spark", "symlink")))[0].is_new:
                    world.happened("the table was published")
            except DbioError as error:
                give_up(world, actor, "cannot publish", error)

    return act


def copier(stage: Stage, *, copies: int, naps_s: Sequence[float] = (0.5, 60.0, 300.0)) -> Act:
    """Somebody who copies the table to places where nothing goes wrong."""

    def act(world: World, actor: Actor) -> None:
        for number in range(copies):
            actor.clock.sleep(world.random.choice(naps_s))
            model, target = stage.model, MemoryStore(actor.clock, url=f"s3://sim/copy-{number}")
            assert isinstance(model, Model)
            try:
                copy_table(world.store, target, actor.clock)
            except DbioError as error:
                give_up(world, actor, "cannot copy", error)
                continue
            world.happened("the table was copied")
            bodies = (body for path, (body, _) in target.objects.items() if names.is_data_file(path))
            if actor.stood_still >= actor.looked:
                world.happened("a copier stood still in its last look")  # a known limit: NOTES.md, Erasures
            elif back := {row for body in bodies for row in model.erased & {*rows_in(body)}}:
                raise Violation(f"erased rows came back: {sorted(back)} in a copy")

    return act


def checkpointer(stage: Stage, *, checkpoints: int, naps_s: Sequence[float] = (0.5, 60.0, 300.0)) -> Act:
    """Somebody who writes checkpoints, and may stand still in between."""

    def act(world: World, actor: Actor) -> None:
        for _ in range(checkpoints):
            actor.clock.sleep(world.random.choice(naps_s))
            try:
                if table_of(world, actor).checkpoint() is None:
                    world.happened("a checkpoint was not needed, or came late")
            except DbioError as error:
                give_up(world, actor, "cannot write a checkpoint", error)

    return act


def _delete(stage: Stage, world: World, actor: Actor, rows: frozenset[bytes], where: str) -> Commit:
    """Deletes the rows, as `dbio.delete` does."""
    table: Any = table_of(world, actor)
    with table.begin("rewrite") as transaction:
        asked = Asked("rewrite")
        assert isinstance(stage.model, Model)
        stage.model.asked[transaction.tid] = asked
        removed = set[str]()
        for file in table.snapshot().files:
            before = rows_in(world.store.get(file.path))
            if rows.isdisjoint(before):
                continue
            removed.add(file.path)
            if left := [row for row in before if row not in rows]:
                path = transaction.new_file(partition=file.partition).removeprefix(f"{world.store.url}/")
                with world.store.open_write(path) as stream:
                    stream.write(b"".join(left))
                asked.added.add(path)
        asked.removed = frozenset(removed)
        transaction.remove(removed)
        commit: Commit = transaction.commit()
    return commit
