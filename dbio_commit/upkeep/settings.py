"""Changes the settings of a table, by a commit without files in a turn."""

from collections.abc import Mapping

from dbio_commit.base.clock import Clock
from dbio_commit.base.errors import InvalidInputError, TableNotFoundError
from dbio_commit.commit.begin import Intent, begin, look
from dbio_commit.commit.provenance import NO_NOTE, Note
from dbio_commit.data.clustering import with_own_spelling
from dbio_commit.protocol import names
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.settings import Settings, bare_columns, change, check_changes
from dbio_commit.protocol.state import Metadata
from dbio_commit.store import Store
from dbio_commit.upkeep.publish import place_of


def change_settings(
    store: Store, clock: Clock, changes: Mapping[str, str], *, if_match: str | None = None, note: Note = NO_NOTE
) -> Commit:
    """Changes these settings. An empty text removes a setting; the others stay as they are. With `if_match`, nothing
    may have been committed since. `note` has the message and labels of the commit.

    Raises InvalidInputError for what cannot be set and if it is not a dbio table, TableNotFoundError,
    TransactionAbortedError, CommitStateUnknownError, StoreError.
    """
    sets = check_changes(changes)
    target = look(store, clock)
    if target.scope is None:
        raise TableNotFoundError(f"there is no table at {store.url} whose settings could change; check the path")
    if not target.is_table:
        raise InvalidInputError(
            f"{store.url} has no {names.DESCRIPTOR}, so it has no settings; `dbio adopt` makes it a table"
        )
    _refuse_unfit(sets, target.metadata, where=store.url)
    sets = with_own_spelling(
        sets, target.metadata.settings, target.metadata.schema, target.partition_columns or (), where=store.url
    )
    intent = Intent(operation="rewrite", sets=sets, if_match=if_match, note=note)
    with begin(place_of(store, clock), intent, target=target) as transaction:
        return transaction.commit()


def _refuse_unfit(sets: Settings, before: Metadata, *, where: str) -> None:
    """Raises InvalidInputError for settings that the table's columns do not fit: a misspelled name, for example."""
    if before.schema is None:
        return
    columns, new = [field["name"] for field in before.schema["fields"]], {it: sql for it, sql in sets.items() if sql}
    if unknown := bare_columns(new) - {name.lower() for name in columns}:
        raise InvalidInputError(f"{where} has no column {min(unknown)!r:.100}, of which to write no statistics")
    Constraints.of(new).refuse_lost(columns, where=where)
    Constraints.of(change(before.settings, sets)).refuse_names(new, columns, where=where)
