"""Runs one vacuum of a directory of the directory scope, as DBIO does it: `directory_plan` decides, `executor` acts.

The order of the steps keeps the files safe at every moment, even if the vacuum is killed: PROTOCOL.md 11.4.
"""

from collections.abc import Sequence

from dbio_commit.base.errors import StoreError, TableNotFoundError
from dbio_commit.commit.tids import new_tid
from dbio_commit.log.listing import refuse_lost_descriptor, until_quiet
from dbio_commit.log.opening import check_directories
from dbio_commit.maintenance.vacuum import directory_plan as plan
from dbio_commit.maintenance.vacuum.executor import Executor
from dbio_commit.maintenance.vacuum.plan import Candidate, Contents, by_directory
from dbio_commit.protocol import names
from dbio_commit.protocol.directory import is_empty, parse_directories
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.garbage import Reason
from dbio_commit.protocol.log import parse_log
from dbio_commit.protocol.markers.bodies import encode
from dbio_commit.protocol.markers.commit import CommitMarker


class DirectoryVacuum:
    def __init__(self, executor: Executor) -> None:
        self._executor, self._store, self._clock = executor, executor.store, executor.clock

    def run(self) -> bool:
        """Runs the vacuum. Returns False, and does nothing, if the directory has become a table meanwhile."""
        found = until_quiet(self._store, self._read_directories)
        if found is None:
            return False
        tree, directories = found
        horizons, gone = self._executor.horizons, set[str]()
        files = [garbage for it in directories for garbage in plan.data_files(it, horizons)]
        self._executor.keep(garbage for garbage in files if not garbage.due)
        gone |= self._executor.delete(self._still_pending([garbage for garbage in files if garbage.due]))
        # Each step is complete in all directories before the next: a marker is deleted after what it hides.
        markers = [marker for it in directories for marker in plan.start_markers(it, horizons)]
        gone |= self._executor.delete(self._still_empty(markers))
        queued = [marker for it in directories for marker in plan.queued_markers(it, horizons, gone)]
        gone |= self._executor.delete(plan.without_the_last(directories, queued, gone))
        gone |= self._executor.delete([queue for it in directories for queue in plan.queues(it, horizons, gone)])
        for it in directories:
            self._put_queue(it.path, plan.to_queue(it, horizons, gone))
        self._executor.abort_unfinished()
        self._executor.remove_directories(tree, by_directory(gone))
        return True

    def _read_directories(self) -> tuple[dict[str, Contents], list[plan.DbioDirectory]] | None:
        """The directories with their contents and markers; None if this has become a table meanwhile."""
        tree: dict[str, Contents] = {}
        entries: list[Entry] = []
        below: list[str] = []
        for listed in self._executor.workers.list_tree():
            self._executor.note(tree, listed)
            entries += listed.entries
            below += (f"{directory}/" for directory in listed.directories)
        log = parse_log(self._store.list_log())
        if log.descriptor is not None:  # a descriptor comes before the markers of its table
            return None
        refuse_lost_descriptor(self._store, log)
        check_directories(self._store, [*below, *(entry.path for entry in entries)])
        if is_empty(parse_directories(entries)) and not any(map(plan.is_marker, entries)):
            raise TableNotFoundError(f"there is no table at {self._store.url}; check the path")
        directories = plan.read_directories(self._store, entries)
        if not self._store.has_directories:
            return tree, directories
        # Readers follow symbolic links, vacuum does not: in a directory with links it cannot know what a marker hides.
        seen = {entry.path for entry in entries}
        unseen = {names.split(entry.path)[0] for entry in self._store.list_files() if entry.path not in seen}
        linked = {directory for directory in unseen if not directory or names.is_data_file(directory)}
        if linked:
            self._executor.warnings.append(f"directories that hold symbolic links are left alone: {len(linked):,}")
        tree = {path: contents for path, contents in tree.items() if path not in linked}
        return tree, [it for it in directories if it.path not in linked]

    def _still_pending(self, due: Sequence[Candidate]) -> list[Candidate]:
        """The due files, without those of timed-out transactions that have committed since the listing."""
        markers = {
            names.join(names.split(it.path)[0], names.committed(it.tid))
            for it in due
            if it.reason is Reason.PENDING and it.tid
        }
        found = {entry.path for entry in self._store.stat_many(sorted(markers)) if entry and entry.size}
        return [it for it in due if names.join(names.split(it.path)[0], names.committed(it.tid or "")) not in found]

    def _still_empty(self, markers: Sequence[Candidate]) -> list[Candidate]:
        """The markers, without commit markers that are no longer empty."""
        empty = [it.path for it in markers if it.reason is Reason.EMPTY_MARKER and not it.size]
        filled = {entry.path for entry in self._store.stat_many(empty) if entry and entry.size}
        return [it for it in markers if it.path not in filled]

    def _put_queue(self, directory: str, markers: Sequence[str]) -> None:
        self._executor.queued += [names.join(directory, name) for name in markers]
        if self._executor.dry_run or not markers:
            return
        name = names.vacuum_queue(new_tid(self._clock))
        path = names.join(directory, name)
        try:
            self._store.put_if_absent(path, encode(CommitMarker(added=[], removed=[*markers, name])))
        except StoreError as error:
            self._executor.failed[path] = str(error)
