"""The commands of `dbio`: a function for each. They call a `Table`, and the modules of this package print the results.

Credentials come from the environment only: everyone on a machine can read the command lines of processes.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from dbio_commit import __version__
from dbio_commit.base.clock import SYSTEM_CLOCK
from dbio_commit.base.errors import DbioError, InvalidInputError, RetentionError
from dbio_commit.base.figures import count_text
from dbio_commit.base.packages import needs
from dbio_commit.base.progress import silent
from dbio_commit.base.texts import visible
from dbio_commit.cli.changed import (
    compaction_json,
    copy_json,
    drop_json,
    parse_changes,
    print_compaction,
    print_copy,
    print_drop,
    print_published,
    print_settings,
    published_json,
)
from dbio_commit.cli.check import check_json, print_check
from dbio_commit.cli.doctor import findings_json, look_around, print_findings
from dbio_commit.cli.log import (
    Choice,
    changes_json,
    lags_json,
    log_json,
    print_changes,
    print_lags,
    print_log,
    print_trace,
    refuse_both,
    trace_json,
)
from dbio_commit.cli.output import one_line, print_json, print_result, progress, say, say_error, status
from dbio_commit.cli.report import find_streams, look_at, print_report, report_json, write_page
from dbio_commit.cli.serve import pairs, run_server
from dbio_commit.cli.snapshot import diff_json, print_diff, print_files, print_schema, schema_json, snapshot_json
from dbio_commit.cli.transactions import adoption_json, print_adoption, print_transaction, transaction_json
from dbio_commit.cli.vacuum import erasure_json, print_erasure, print_vacuum, vacuum_json
from dbio_commit.log.newest import newest_commits
from dbio_commit.maintenance.chosen import parse_values
from dbio_commit.maintenance.compact.options import HELP as COMPACT_HELP
from dbio_commit.maintenance.compact.options import TARGET_BYTES
from dbio_commit.maintenance.doctor import Verdict
from dbio_commit.maintenance.figures import parse_size, total_json, total_text
from dbio_commit.maintenance.inspect import TransactionState
from dbio_commit.maintenance.rebuild import Rebuilt, rebuild_checkpoint
from dbio_commit.maintenance.vacuum.report import HISTORY_DAYS, Control, VacuumOptions
from dbio_commit.table import Table, vacuum_table

app = typer.Typer(
    name="dbio",
    help="Inspect, check and maintain tables of plain Parquet files with transactions.",
    epilog="Credentials come from the environment: AWS_PROFILE, AWS_ENDPOINT_URL, AZURE_STORAGE_CONNECTION_STRING and "
    "all others that the clients of the stores use. Exit codes: 0 success, 1 failure, 2 wrong usage, 130 Ctrl-C.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_Path = Annotated[
    str, typer.Argument(metavar="PATH", show_default=False, help="The table: a path, or s3://, az://, gs://...")
]
_Tid = Annotated[
    str, typer.Argument(metavar="TID", show_default=False, help="The transaction, as shown by log or check.")
]
_Message = Annotated[str | None, typer.Option(metavar="TEXT", show_default=False, help="A message for `dbio log`.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, also for an error.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dbio-commit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and exit.")
    ] = False,
) -> None: ...


@app.command()
def files(
    path: _Path,
    as_of: Annotated[
        str | None, typer.Option(metavar="TIME|TID", help="As of a time (ISO 8601 with a zone), or as of a commit.")
    ] = None,
    ignore_corrupt_markers: Annotated[
        bool, typer.Option("--ignore-corrupt-markers", help="Treat transactions with corrupt markers as pending.")
    ] = False,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION", help='Only files that may have rows for which the condition is true: "id > 5".'
        ),
    ] = None,
    as_json: _Json = False,
) -> None:
    """List the live files.

    The condition is in Spark's SQL. Files are left out by their partitions and by the statistics of their columns. A
    time without a zone in the condition may be in any zone.

    In a pipe: path, bytes, tid and partition of each file, separated by tabs.
    """
    with _errors(as_json):
        with status("reading the log"):
            snapshot = Table(path).snapshot(as_of=as_of, ignore_corrupt_markers=ignore_corrupt_markers)
            found = snapshot if where is None else snapshot.where(where)
            left_out = len(snapshot.files) - len(found.files)
        # A large table's files are read only now.
        print_result(as_json, lambda: snapshot_json(found, left_out), lambda: print_files(found, left_out))


@app.command()
def schema(path: _Path, as_json: _Json = False) -> None:
    """List the columns: the recorded ones, or else those of the newest file.

    In a pipe: name, type, and "partition" for a partition column, separated by tabs.
    """
    with _errors(as_json, "reading the columns"):
        table = Table(path)
        columns, snapshot = table.schema(), table.snapshot()
    print_result(as_json, lambda: schema_json(columns, snapshot), lambda: print_schema(columns, snapshot))


@app.command()
def log(
    path: _Path,
    number: Annotated[
        int | None, typer.Option("-n", "--limit", "--number", metavar="N", min=1, help="At most so many commits.")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME|TID", help="Only commits from then on.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME|TID", help="Only commits until then.")] = None,
    app_id: Annotated[str | None, typer.Option("--app", metavar="ID", help="Only commits of this application.")] = None,
    operation: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only commits of this operation, such as append, or merge.")
    ] = None,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="The commits that added and removed this data file.")
    ] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Only commits that added or removed files there; repeatable."),
    ] = None,
    as_json: _Json = False,
) -> None:
    """List the commits, newest first.

    In a pipe: tid, time, operation, files added, files removed, rows, bytes, application, message, user@host; separated
    by tabs. With --file, what the commit did to the file comes first.
    """
    choice = Choice(most=number, since=since, until=until, app=app_id, operation=operation)
    with _errors(as_json, "reading the log"):
        refuse_both(file, partition or (), choice)
        table = Table(path)
        trace = table.trace(file) if file is not None else None
        if number is not None and choice == Choice(most=number) and not partition:
            table.refuse_partition()
            commits = newest_commits(table.store, table.clock, number)
        else:
            known = () if trace else table.history(partition=parse_values(partition) if partition else None)
            commits = choice.of(known)
        sum(commit.removed_files for commit in commits)  # reads what is to be printed
    now = table.clock.now()
    if trace:
        print_result(as_json, lambda: trace_json(table.url, trace), lambda: print_trace(trace, now))
    else:
        print_result(as_json, lambda: log_json(table.url, commits), lambda: print_log(commits, now))


@app.command()
def diff(
    path: _Path,
    first: Annotated[str, typer.Argument(metavar="TIME|TID", show_default=False, help="The first state.")],
    second: Annotated[
        str | None, typer.Argument(metavar="TIME|TID", show_default=False, help="The second state; by default, now.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Show how two states of a table differ: rows, files, partitions, columns and settings.

    In a pipe: "removed" or "added", path and bytes of each file that only one of the states has; separated by tabs.
    """
    with _errors(as_json, "comparing the states"):
        found = Table(path).diff(first, second)
    print_result(as_json, lambda: diff_json(found), lambda: print_diff(found))


@app.command()
def changes(
    path: _Path,
    start: Annotated[
        str, typer.Option("--from", metavar="TIME|TID", show_default=False, help="The first commit, or a time.")
    ],
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME|TID", help="The last commit, or a time; by default, now.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """List what each commit added and removed, oldest first. Both ends are included.

    In a pipe: tid, time, operation, files and rows added, files and rows removed, rows updated; separated by tabs.
    """
    with _errors(as_json, "reading the log"):
        table = Table(path)
        found = table.changes(start, end)
    print_result(as_json, lambda: changes_json(table.url, found), lambda: print_changes(found))


@app.command()
def lag(
    path: _Path,
    checkpoints: Annotated[
        list[str],
        typer.Argument(metavar="CHECKPOINT...", show_default=False, help="The checkpointLocation of each stream."),
    ],
    as_json: _Json = False,
) -> None:
    """Show how far streams that read the table are behind it: commits, files, bytes, and the age of the oldest commit.

    In a pipe: query, last batch, commits, files, bytes, and the time of the oldest commit, separated by tabs.
    """
    with _errors(as_json, "reading the log"):
        table = Table(path)
        lags = [table.lag(checkpoint) for checkpoint in checkpoints]
    print_result(as_json, lambda: lags_json(table.url, lags), lambda: print_lags(lags, table.clock.now()))


@app.command()
def show(path: _Path, tid: _Tid, as_json: _Json = False) -> None:
    """Show one transaction: its state, and the files that it added and removed."""
    with _errors(as_json, "reading the log"):
        table = Table(path)
        report = table.show(tid)
    print_result(as_json, lambda: transaction_json(report), lambda: print_transaction(report, table.clock.now()))


@app.command()
def check(
    path: _Path,
    files: Annotated[
        bool, typer.Option("--files", help="Also read the footer of each live file, with a request for each.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Look for missing and damaged files, corrupt markers, pending transactions and garbage.

    With --files, also for files that some engines cannot read or misread. Exits with 1 if something is wrong. Pending
    transactions and garbage are normal.
    """
    shows = progress() if files else nullcontext(silent)
    with _errors(as_json, "" if files else "checking the table"), shows as show_progress:
        report = Table(path).check(files, progress=show_progress)
    print_result(as_json, lambda: check_json(report), lambda: print_check(report), ok=report.ok)


@app.command()
def report(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", show_default=False, help="The tables: paths, or URLs.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", show_default=False, help="The page, such as report.html.")
    ],
    retention_hours: Annotated[
        float, typer.Option(metavar="N", help="The retention with which to compute what vacuum would free.")
    ] = 48.0,
    stream: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECKPOINT", help="The checkpoint of a stream that reads one of the tables; repeatable."),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Write an HTML page about the health of tables: a single file that needs no network.

    It shows live data, commits, garbage, what vacuum would free, and pending transactions. Changes nothing in the
    tables. Exits with 1 if `check` would for one of them. The page names what could not be found out.
    """
    with _errors(as_json):
        options = VacuumOptions(retention_hours=retention_hours)
        options.check()
        tables = [Table(path) for path in paths]
        streams, subjects = find_streams(tables, stream or ()), []
        for table in tables:
            with status(f"inspecting {visible(table.url)}"):
                subjects.append(look_at(table, options, streams[table.url]))
        shown = write_page(output, subjects, SYSTEM_CLOCK.now())
    ok = not any(it.wrong for it in shown)
    print_result(as_json, lambda: report_json(output, shown), lambda: print_report(output, shown), ok=ok)


@app.command()
def vacuum(
    path: _Path,
    retention_hours: Annotated[
        float, typer.Option(metavar="N", help="How long removed files stay, and how long a transaction may be pending.")
    ] = 48.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Allow a retention below 1 h.")] = False,
    untracked: Annotated[
        bool, typer.Option("--untracked", help="Also delete old files that no transaction wrote and no commit names.")
    ] = False,
    checkpoint_after: Annotated[
        int, typer.Option(metavar="N", help="Write a checkpoint after so many new commits; 0: after any.")
    ] = 20,
    history_days: Annotated[
        float, typer.Option(metavar="N", help="How long commits stay in the log after all of their files are gone.")
    ] = HISTORY_DAYS,
    as_json: _Json = False,
) -> None:
    """Delete files that no reader needs any more, and abort transactions that are pending longer than the retention.

    Exits with 1 if something could not be done; the next run tries it again. In a pipe: path, bytes, age in seconds and
    reason of each object, separated by tabs.
    """
    with _errors(as_json):
        options = VacuumOptions(
            retention_hours=retention_hours,
            force=force,
            untracked=untracked,
            checkpoint_after=checkpoint_after,
            history_days=history_days,
        )
        with progress() as show_progress:
            control = Control(progress=show_progress)
            report = vacuum_table(Table(path), options, dry_run=dry_run, control=control)
    print_result(as_json, lambda: vacuum_json(report), lambda: print_vacuum(report), ok=report.ok)


@app.command()
def compact(
    path: _Path,
    where: Annotated[str | None, typer.Option(metavar="CONDITION", help=COMPACT_HELP["where"])] = None,
    target_size: Annotated[
        str, typer.Option(metavar="SIZE", help=COMPACT_HELP["target_size"])
    ] = f"{TARGET_BYTES // 1000**2}MB",
    sort_by: Annotated[str, typer.Option(metavar="COLUMN,...", help=COMPACT_HELP["sort_by"])] = "",
    z_order: Annotated[str, typer.Option(metavar="COLUMN,...", help=COMPACT_HELP["z_order"])] = "",
    min_files: Annotated[int, typer.Option(metavar="NUMBER", help=COMPACT_HELP["min_files"])] = 1,
    rewrite_types: Annotated[bool, typer.Option("--rewrite-types", help=COMPACT_HELP["rewrite_types"])] = False,
    full: Annotated[bool, typer.Option("--full", help=COMPACT_HELP["full"])] = False,
    most: Annotated[str | None, typer.Option(metavar="SIZE", show_default=False, help=COMPACT_HELP["most"])] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
    message: _Message = None,
    as_json: _Json = False,
) -> None:
    """Merge small files into large ones, in each partition. The rows stay the same.

    Writers may go on meanwhile: files that they remove are left alone. A vacuum deletes the old files after its
    retention. In a pipe: directory, files and bytes before; path, bytes and rows of the new file; separated by tabs.
    """
    with _errors(as_json):
        size, table = parse_size(target_size), Table(path)
        with status("compacting"):
            report = table.compact(
                size,
                where=where,
                sort_by=_split(sort_by),
                z_order=_split(z_order),
                min_files=min_files,
                rewrite_types=rewrite_types,
                full=full,
                most=None if most is None else parse_size(most),
                dry_run=dry_run,
                message=message,
            )
    print_result(as_json, lambda: compaction_json(report), lambda: print_compaction(report))


@app.command()
def checkpoint(
    path: _Path,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild", help="Replace a checkpoint that cannot be read, or lost parts of it, as found by `dbio check`."
        ),
    ] = False,
    as_json: _Json = False,
) -> None:
    """Write a checkpoint: the state of the log in one object, so that reading the table takes fewer requests."""
    with _errors(as_json, "writing a checkpoint"):
        table = Table(path)
        table.refuse_partition()
        done = rebuild_checkpoint(table.store, table.clock) if rebuild else Rebuilt(table.checkpoint())
    told = {"used": done.used, "loses": done.loses} if rebuild else {}
    lines = [*(f"used {it}" for it in done.used), *(f"lost {it}" for it in done.loses)]
    nothing = "another process has just written it" if rebuild else "nothing is new since the last checkpoint"
    lines.append(f"wrote {done.name}" if done.name else nothing)
    print_result(as_json, lambda: {"url": table.url, "checkpoint": done.name, **told}, lambda: say(*lines))


@app.command()
def copy(
    path: _Path,
    target: Annotated[str, typer.Argument(metavar="TARGET", show_default=False, help="An empty path.")],
    as_of: Annotated[
        str | None, typer.Option(metavar="TIME|TID", help="Only a state: makes another table of it, with one commit.")
    ] = None,
    incremental: Annotated[
        bool, typer.Option("--incremental", help="Only what is new since the last such copy, with one commit.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Copy a table to another path: files, history, columns and settings, as they are now.

    The times of its commits stay, so that time travel and streams work on the copy. (Other tools give copied objects
    new times.) Commits during the copy are not copied: to move a table, stop its writers first. With --as-of, the copy
    is another table, without the history. With --incremental, it is such a table, too. Each further run brings it to
    the state of the original by one commit: it copies the files that are new, and removes the files that are gone.

    If a run was interrupted, run the same command again: it goes on.
    """
    with _errors(as_json):
        table = Table(path)
        with status("copying the table"):
            report = table.copy(target, as_of=as_of, incremental=incremental)
    print_result(
        as_json, lambda: copy_json(table.url, report), lambda: print_copy(table.url, report, incremental=incremental)
    )


@app.command("set")
def set_settings(
    path: _Path,
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=TEXT]...", show_default=False, help="Settings; an empty text removes one."),
    ] = None,
    message: _Message = None,
    as_json: _Json = False,
) -> None:
    """Change settings of a table, such as publish=delta,spark, and show all of them.

    In a pipe: name and value of each setting, separated by a tab.
    """
    with _errors(as_json, "changing the settings"):
        table = Table(path)
        sets = parse_changes(changes or ())
        settings = (table.set(sets, message=message).settings or {}) if sets else table.settings()
    print_result(as_json, lambda: {"url": table.url, "settings": dict(settings)}, lambda: print_settings(settings))


@app.command()
def publish(
    path: _Path,
    to: Annotated[
        list[str],
        typer.Option(metavar="FORMAT", show_default=False, help="delta, iceberg, spark or symlink; repeatable."),
    ],
    as_json: _Json = False,
) -> None:
    """Publish the table as it is now for other engines: as a Delta log, as Iceberg's metadata, as Spark's list of
    files, or as Hive manifests.

    They read exactly this snapshot until the next publication. In a pipe: format, number, tid, files, files added,
    files removed, and whether anything was new, separated by tabs.
    """
    with _errors(as_json, "publishing the table"):
        table = Table(path)
        done = table.publish(to)
    print_result(as_json, lambda: published_json(table.url, done), lambda: print_published(done))


@app.command()
def adopt(path: _Path, message: _Message = None, as_json: _Json = False) -> None:
    """Turn a directory of plain Parquet files, or one that Databricks wrote, into a table of the files visible now.

    Reads the footer of each file, and records the columns. Moves and deletes nothing.

    From then on, only commits at the root count: stop other writers first.
    """
    with _errors(as_json):
        table = Table(path)
        with progress() as show_progress:
            commit = table.adopt(progress=show_progress, message=message)
    print_result(as_json, lambda: adoption_json(table.url, commit), lambda: print_adoption(table.url, commit))


@app.command()
def restore(
    path: _Path,
    as_of: Annotated[
        str, typer.Argument(metavar="TIME|TID", show_default=False, help="A state that `dbio log` lists.")
    ],
    partition: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Restore only this partition; once for each column."),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="Restore only partitions for which it holds: \"day >= '2026-11-20'\"."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    message: _Message = None,
    as_json: _Json = False,
) -> None:
    """Bring a table, or some partitions of it, back to an earlier state, by one commit.

    The commit can be undone in the same way. A condition uses partition columns only. In a terminal, asks before it
    removes files. Fails if vacuum has deleted files of that state, if the table had no commit then, or if another
    commit comes meanwhile.
    """
    with _errors(as_json):
        table = Table(path)
        values = parse_values(partition) if partition else None
        with status("comparing the states"):
            plan = table.plan_restore(as_of, partition=values, where=where)
        for tid in (joint := plan.joint)[:1]:
            say_error(
                f"{count_text(len(joint), 'joint transaction')} since then, the newest {tid}, are undone in this table "
                "only; the other tables keep them: `dbio show` names these"
            )
        if dry_run:
            facts = {"url": table.url, "as_of": as_of, "added": len(plan.back), "removed": len(plan.goes)}
            back, goes = count_text(len(plan.back), "file"), total_text(plan.goes)
            what = f"{back} would come back as copies, {goes} would be removed"
            return print_result(as_json, lambda: {**facts, "dry_run": True}, lambda: say(what))
        if plan.goes and not yes and _is_interactive():
            _confirm(f"Remove {total_text(plan.goes)} from {table.url}?")
        with status("copying files"):
            commit = table.restore(plan, message=message)
    counts = {"added": commit.added_files, "removed": commit.removed_files}
    what = f"{table.url}{', of some partitions,' if plan.is_part else ''} as of {as_of} by {commit.tid}"
    came = f"{count_text(commit.added_files, 'file')} came back as copies, {commit.removed_files:,} removed"
    print_result(
        as_json,
        lambda: {"url": table.url, "tid": commit.tid, "as_of": as_of, **counts},
        lambda: say(f"restored {what}: {came}"),
    )


@app.command()
def abort(
    path: _Path,
    tid: _Tid,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone", help="Of a joint transaction whose home is gone for good: abort it here, without its home."
        ),
    ] = False,
    as_json: _Json = False,
) -> None:
    """Abort a pending transaction. Its writer can then no longer commit it.

    A joint transaction is aborted in all of its tables.
    """
    with _errors(as_json, "aborting the transaction"):
        table = Table(path)
        before = table.show(tid)
        table.abort(tid, alone=alone)
    told = {"url": table.url, "tid": tid, "state": TransactionState.ABORTED, "garbage": total_json(before.files)}
    was_aborted = before.state is TransactionState.ABORTED
    done = f"aborted {tid}; its files are garbage now: {total_text(before.files)}"
    print_result(as_json, lambda: told, lambda: say(f"{tid} was already aborted" if was_aborted else done))


@app.command()
def drop(
    path: _Path,
    everything: Annotated[
        bool, typer.Option("--everything", help="Also remove a table with commits, and all of its rows.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: _Json = False,
) -> None:
    """Remove a table without commits, as left by a failed first write. With --everything, remove any table.

    Takes a minute or more, to make sure that no writer is left. Files that no transaction wrote stay. After a failure,
    run it again to continue.
    """
    with _errors(as_json):
        table = Table(path)
        if not yes:
            _confirm(f"Remove the table {table.url}{', with all of its rows' if everything else ''}?")
        with status("removing the table; this takes a minute, to make sure that no writer is left"):
            report = table.drop(everything=everything)
    print_result(as_json, lambda: drop_json(report), lambda: print_drop(report))


@app.command()
def doctor(
    path: Annotated[
        str,
        typer.Argument(metavar="PATH", show_default=False, help="The table, or where to create one: a path or a URL."),
    ],
    as_json: _Json = False,
) -> None:
    """Check whether tables can be written at a path: credentials, put-if-absent, clocks, versions, and Spark's Python.

    Creates one small object there, and deletes it. Exits with 1 if there is a problem, and says what to do. In a pipe:
    verdict, what, what was found and what to do, separated by tabs.
    """
    with _errors(as_json, "looking at the store"):
        findings = [*look_around(path)]
    ok = all(it.verdict is not Verdict.PROBLEM for it in findings)
    print_result(as_json, lambda: findings_json(path, findings), lambda: print_findings(findings), ok=ok)


@app.command()
def erase(
    path: _Path,
    where: Annotated[
        str, typer.Option(metavar="CONDITION", show_default=False, help='Which rows, in Spark\'s SQL: "user_id = 17".')
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: _Json = False,
) -> None:
    """Erase rows for good, as a person may demand: from files, earlier states, statistics, markers and publications.

    Takes a minute or more. Readers of earlier states fail then, and time travel to them ends. A condition that only
    Spark can evaluate needs PySpark on this machine. Run it again after a failure, and after pending transactions
    have ended.

    Exits with 1 if something may be left in the table. In a pipe: path, bytes, age in seconds and reason of each
    deleted object, separated by tabs.
    """
    with _errors(as_json):
        table = Table(path)
        if not (dry_run or yes):
            _confirm(f"Erase rows of {table.url} where {where}, and all earlier states that hold them?", "erased")
        with progress() as show_progress:
            report = table.erase(where, dry_run=dry_run, progress=show_progress)
    print_result(as_json, lambda: erasure_json(report), lambda: print_erasure(report), ok=report.ok)


@app.command()
def jar(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", show_default=False, help="The file to write, such as dbio-commit.jar.")
    ],
    as_json: _Json = False,
) -> None:
    """Write a jar for spark.jars. Needed only for a Spark that accepts no classes at run time.

    The classes are compiled against the installed PySpark, and work with a Spark of the same version of Scala.
    """
    with _errors(as_json):
        with needs("dbio jar", extra="spark"):
            from dbio_commit.spark.session.jvm import make_jar
        with status("compiling the classes"):
            scala = make_jar(file)
    done = f"wrote {file}, for a Spark with Scala {scala}"
    print_result(as_json, lambda: {"jar": str(file), "scala": scala}, lambda: say(done))


@app.command()
def serve(
    root: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH", show_default=False, help="A root: PATH/events is dbio.NAME.events; repeatable."
        ),
    ] = None,
    thrift: Annotated[bool, typer.Option("--thrift", help="Serve Thrift, for JDBC, and not Spark Connect.")] = False,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", min=1, max=65535, help="By default 15002; with --thrift 10000."),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TEXT", show_default=False, help="A setting of Spark, but no secret; repeatable."),
    ] = None,
) -> None:
    """Serve SQL on tables, for clients of Spark Connect, or of Thrift such as JDBC. Starts a Spark driver.

    Anyone who can connect may do what this process may. SIGTERM or Ctrl-C ends it.
    """
    with _errors(False):
        with needs("dbio serve", extra="spark"):
            from dbio_commit.spark.serve import ServeOptions, Server
        options = ServeOptions(
            host=host,
            port=port or (10000 if thrift else 15002),
            thrift=thrift,
            roots=pairs(root or (), "--root"),
            conf=pairs(conf or (), "--conf"),
        )
        if run_server(Server(options), options):
            raise typer.Exit(130)


def _split(columns: str) -> list[str]:
    return [column.strip() for column in columns.split(",") if column.strip()]


def _is_interactive() -> bool:
    """Whether a person can answer a question."""
    return sys.stdin.isatty()


def _confirm(question: str, done: str = "removed") -> None:
    """Raises InvalidInputError if there is no terminal, and Abort if the answer is no."""
    if not _is_interactive():
        raise InvalidInputError(f"nothing was {done}: confirmation needs a terminal; pass --yes to go without")
    typer.confirm(visible(question), abort=True, err=True)


@contextmanager
def _errors(as_json: bool, doing: str = "") -> Iterator[None]:
    """Turns a DbioError into a message and an exit code. Any other error is a bug, and stays a traceback.

    `doing` is shown with a spinner, if the block takes long.
    """
    try:
        with status(doing) if doing else nullcontext():
            yield
    except DbioError as error:
        if as_json:
            print_json({"error": type(error).__name__, "message": str(error)})
        else:
            say_error(one_line(error))
        raise typer.Exit(2 if isinstance(error, InvalidInputError | RetentionError) else 1) from None
