"""The commands: `dbio files`, `dbio log` and so on, one for each function below. They decide and lay out nothing.

Credentials come from the environment: on a command line everybody on the machine could read them.
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
from dbio_commit.base.packages import needs
from dbio_commit.base.texts import visible
from dbio_commit.cli.check import check_json, print_check
from dbio_commit.cli.compact import compaction_json, print_compaction
from dbio_commit.cli.drop import drop_json, print_drop
from dbio_commit.cli.files import print_files, snapshot_json
from dbio_commit.cli.output import one_line, print_json, say, say_error
from dbio_commit.cli.progress import progress, status
from dbio_commit.cli.publish import print_published, published_json
from dbio_commit.cli.report import find_streams, look_at, print_report, report_json, write_page
from dbio_commit.cli.schema import print_schema, schema_json
from dbio_commit.cli.settings import parse_changes, print_settings, settings_json
from dbio_commit.cli.streams import changes_json, lags_json, print_changes, print_lags
from dbio_commit.cli.transactions import (
    adoption_json,
    commit_json,
    print_adoption,
    print_log,
    print_transaction,
    transaction_json,
)
from dbio_commit.cli.vacuum import print_vacuum, vacuum_json
from dbio_commit.log.unlike import silent
from dbio_commit.spark.vacuum import vacuum_table
from dbio_commit.table import Table
from dbio_commit.upkeep.figures import count_text, files_text, parse_size, total_json, total_text
from dbio_commit.upkeep.inspect import TransactionState
from dbio_commit.upkeep.vacuum.report import HISTORY_DAYS, Control, VacuumOptions

app = typer.Typer(
    name="dbio",
    help="Look at tables of plain Parquet files with transactions, and delete what no reader needs any more.",
    epilog="Credentials come from the environment: AWS_PROFILE, AWS_ENDPOINT_URL, AZURE_STORAGE_CONNECTION_STRING and "
    "what else the stores' own clients know. Exit codes: 0 fine, 1 something is wrong, 2 usage, 130 Ctrl-C.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_Path = Annotated[
    str, typer.Argument(metavar="PATH", show_default=False, help="The table: a path, or s3://, az://, gs://...")
]
_Tid = Annotated[
    str, typer.Argument(metavar="TID", show_default=False, help="The transaction, as log or check shows it.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, for errors too.")]


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
        str | None, typer.Option(metavar="TIME|TID", help="As of a time (ISO 8601, with a zone), or of a commit.")
    ] = None,
    ignore_corrupt_markers: Annotated[
        bool, typer.Option("--ignore-corrupt-markers", help="Take their transactions for pending.")
    ] = False,
    where: Annotated[
        str | None, typer.Option(metavar="CONDITION", help='Those only that may hold such rows: "id > 5".')
    ] = None,
    as_json: _Json = False,
) -> None:
    """List the live files.

    A condition is in Spark's SQL; it leaves files out by their partitions and by the statistics of their columns. Times
    in it that name no zone may be in any.

    In a pipe: path, bytes, tid and partition of each, separated by tabs.
    """
    with _errors(as_json):
        snapshot = Table(path).snapshot(as_of=as_of, ignore_corrupt_markers=ignore_corrupt_markers)
        found = snapshot if where is None else snapshot.where(where)
    left_out = len(snapshot.files) - len(found.files)
    if as_json:
        print_json(snapshot_json(found, left_out=left_out))
    else:
        print_files(found, left_out=left_out)


@app.command()
def schema(path: _Path, as_json: _Json = False) -> None:
    """List the columns: those that writers recorded, else those of the newest file.

    In a pipe: name, type, and "partition" for a partition column, separated by tabs.
    """
    with _errors(as_json):
        table = Table(path)
        columns, snapshot = table.schema(), table.snapshot()
    if as_json:
        print_json(schema_json(columns, snapshot))
    else:
        print_schema(columns, snapshot)


@app.command()
def log(path: _Path, as_json: _Json = False) -> None:
    """List the commits, newest first.

    In a pipe: tid, time, operation, files added, files removed, rows, bytes and application of each, separated by tabs.
    """
    with _errors(as_json):
        table = Table(path)
        commits = table.history()
    if as_json:
        print_json({"url": table.url, "commits": [commit_json(commit) for commit in commits]})
    else:
        print_log(commits, table.clock.now())


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
    """List what came and went with each commit, oldest first; both ends are included.

    In a pipe: tid, time, operation, files and rows that came, files and rows that went, separated by tabs.
    """
    with _errors(as_json):
        table = Table(path)
        found = table.changes(start, end)
    if as_json:
        print_json(changes_json(table.url, found))
    else:
        print_changes(found)


@app.command()
def lag(
    path: _Path,
    checkpoints: Annotated[
        list[str],
        typer.Argument(metavar="CHECKPOINT...", show_default=False, help="The checkpointLocation of each stream."),
    ],
    as_json: _Json = False,
) -> None:
    """Show how far streams that read the table are behind it: commits, files and bytes, and since when.

    In a pipe: query, last batch, commits, files, bytes, and the time of the oldest commit, separated by tabs.
    """
    with _errors(as_json):
        table = Table(path)
        lags = [table.lag(checkpoint) for checkpoint in checkpoints]
    if as_json:
        print_json(lags_json(table.url, lags))
    else:
        print_lags(lags, table.clock.now())


@app.command()
def show(path: _Path, tid: _Tid, as_json: _Json = False) -> None:
    """Show one transaction: its state, what it added and removed."""
    with _errors(as_json):
        table = Table(path)
        report = table.show(tid)
    if as_json:
        print_json(transaction_json(report))
    else:
        print_transaction(report, table.clock.now())


@app.command()
def check(
    path: _Path,
    files: Annotated[
        bool, typer.Option("--files", help="Look at the footer of each live file, too: a request for each.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Look for missing and damaged files, corrupt markers, pending transactions and garbage.

    With --files also for files that some engine cannot read, or reads as something else. Exits with 1 where readers
    would fail. What is pending, and garbage, is nothing wrong.
    """
    with _errors(as_json), progress() if files else nullcontext(silent) as show_progress:
        report = Table(path).check(files, progress=show_progress)
    if as_json:
        print_json(check_json(report))
    else:
        print_check(report)
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def report(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", show_default=False, help="The tables: paths, or URLs.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", show_default=False, help="The page, such as report.html.")
    ],
    retention_hours: Annotated[
        float, typer.Option(metavar="N", help="As of vacuum: what it would free with this retention.")
    ] = 48.0,
    stream: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECKPOINT", help="Of a stream that reads one of the tables; more than once."),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Write a page for people about the health of tables: one file of HTML that needs no network.

    It shows live data, commits, garbage and what vacuum would free, and pending transactions. Changes nothing in the
    tables. Exits with 1 where `check` would for one of them; the page says what cannot be told.
    """
    with _errors(as_json):
        options = VacuumOptions(retention_hours=retention_hours)
        options.check()
        tables = [Table(path) for path in paths]
        streams, subjects = find_streams(tables, stream or ()), []
        for table in tables:
            with status(f"looking at {visible(table.url)}"):
                subjects.append(look_at(table, options, streams[table.url]))
        write_page(output, subjects, SYSTEM_CLOCK.now())
    if as_json:
        print_json(report_json(output, subjects))
    else:
        print_report(output, subjects)
    if any(subject.wrong for subject in subjects):
        raise typer.Exit(1)


@app.command()
def vacuum(
    path: _Path,
    retention_hours: Annotated[
        float, typer.Option(metavar="N", help="How long what was removed stays, and writers may stay silent.")
    ] = 48.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Allow a retention below 1 h.")] = False,
    untracked: Annotated[
        bool, typer.Option("--untracked", help="Also delete old files that no transaction wrote and no commit names.")
    ] = False,
    checkpoint_after: Annotated[
        int, typer.Option(metavar="N", help="How many commits make the next checkpoint due; 0: any.")
    ] = 20,
    history_days: Annotated[
        float, typer.Option(metavar="N", help="How long the log remembers commits of which no file is left.")
    ] = HISTORY_DAYS,
    as_json: _Json = False,
) -> None:
    """Delete what no reader needs any more; abort transactions that are pending for longer than the retention.

    Exits with 1 where something could not be done; run again, it goes on. In a pipe: path, bytes, age in seconds and
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
    if as_json:
        print_json(vacuum_json(report))
    else:
        print_vacuum(report)
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def compact(
    path: _Path,
    where: Annotated[
        str | None, typer.Option(metavar="CONDITION", help='Those files only that may hold such rows: "day > 5".')
    ] = None,
    target_size: Annotated[
        str, typer.Option(metavar="SIZE", help="About as large a new file becomes: 128MB, 64MiB, 1GB.")
    ] = "128MB",
    sort_by: Annotated[
        str, typer.Option(metavar="COLUMN,...", help="Sort the rows of each new file by these columns.")
    ] = "",
    z_order: Annotated[
        str, typer.Option(metavar="COLUMN,...", help="Put its rows along the Z-curve of these columns, instead.")
    ] = "",
    min_files: Annotated[int, typer.Option(metavar="NUMBER", help="Leave fewer files than so many as they are.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
    as_json: _Json = False,
) -> None:
    """Put small files together to large ones, in each partition; the rows stay the same.

    Writers go on beside it: what they remove meanwhile is left as it is. The old files go with a vacuum, after its
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
                dry_run=dry_run,
            )
    if as_json:
        print_json(compaction_json(report))
    else:
        print_compaction(report)


@app.command()
def checkpoint(
    path: _Path,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="In the place of one that cannot be read; `dbio check` says whether.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Write what the log says into one object, so that reading the table takes fewer requests."""
    with _errors(as_json):
        table = Table(path)
        name = table.checkpoint(rebuild=rebuild)
    if as_json:
        print_json({"url": table.url, "checkpoint": name})
    else:
        nothing = "somebody else was faster" if rebuild else "nothing is new since the last checkpoint"
        say(f"wrote {name}" if name else nothing)


@app.command()
def copy(
    path: _Path,
    target: Annotated[str, typer.Argument(metavar="TARGET", show_default=False, help="A path where nothing is.")],
    as_json: _Json = False,
) -> None:
    """Copy a table to another path: files, history, columns and settings, as they are now.

    The times of its commits stay, so that time travel and streams go on there. A tool that copies objects gives them
    new times. Commits that come meanwhile are not copied: to move a table, stop its writers before.
    """
    with _errors(as_json):
        table = Table(path)
        with status("copying it"):
            report = table.copy(target)
    facts = {"url": report.url, "tid": report.tid, "commits": report.commits, "files": report.files}
    if as_json:
        print_json({**facts, "size": report.size, "copied_from": table.url})
    else:
        what = files_text(report.files, report.size)
        say(f"copied {table.url} to {report.url}: {what}, {count_text(report.commits, 'commit')}")


@app.command("set")
def set_settings(
    path: _Path,
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=TEXT]...", show_default=False, help="What to change; no text removes a setting."),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Change settings of a table, such as publish=delta,spark, and show all of them.

    In a pipe: name and value of each, separated by a tab.
    """
    with _errors(as_json):
        table = Table(path)
        sets = parse_changes(changes or ())
        settings = (table.set(sets).settings or {}) if sets else table.settings()
    if as_json:
        print_json(settings_json(table.url, settings))
    else:
        print_settings(settings)


@app.command()
def publish(
    path: _Path,
    to: Annotated[
        list[str], typer.Option(metavar="FORMAT", show_default=False, help="delta, spark or symlink; more than once.")
    ],
    as_json: _Json = False,
) -> None:
    """Show other engines the table as it is now: as a Delta log, as Spark's list of files, or as Hive's manifests.

    They read exactly one snapshot, until the next publication. In a pipe: format, number, tid, files, files added,
    files removed, and whether anything was new, separated by tabs.
    """
    with _errors(as_json):
        table = Table(path)
        done = table.publish(to)
    if as_json:
        print_json(published_json(table.url, done))
    else:
        print_published(done)


@app.command()
def adopt(path: _Path, as_json: _Json = False) -> None:
    """Make a table of a directory of plain Parquet, or one that Databricks wrote: of the files that are visible now.

    Looks at the footer of each file, and records the columns. Moves and deletes nothing.

    From then on only commits at the root count: stop other writers before.
    """
    with _errors(as_json):
        table = Table(path)
        with progress() as show_progress:
            commit = table.adopt(progress=show_progress)
    if as_json:
        print_json(adoption_json(table.url, commit))
    else:
        print_adoption(table.url, commit)


@app.command()
def restore(
    path: _Path,
    as_of: Annotated[
        str, typer.Argument(metavar="TIME|TID", show_default=False, help="A state that `dbio log` lists.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would come and go; change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: _Json = False,
) -> None:
    """Bring a table back to an earlier state, by one commit, which can be taken back in the same way.

    In a terminal it asks before files go. Fails where vacuum has deleted what was live then, where the table had no
    commit yet, or where somebody commits meanwhile.
    """
    with _errors(as_json):
        table = Table(path)
        plan = table.plan_restore(as_of)
        if dry_run:
            facts = {"url": table.url, "as_of": as_of, "added": len(plan.back), "removed": len(plan.goes)}
            what = f"{count_text(len(plan.back), 'file')} would come back as copies, {total_text(plan.goes)} would go"
            return print_json({**facts, "dry_run": True}) if as_json else say(what)
        if plan.goes and not yes and _is_asked():
            _confirm(f"Take {total_text(plan.goes)} out of {table.url}?")
        commit = table.restore(plan)
    counts = {"added": commit.added_files, "removed": commit.removed_files}
    if as_json:
        print_json({"url": table.url, "tid": commit.tid, "as_of": as_of, **counts})
    else:
        say(
            f"restored {table.url} as of {as_of} by {commit.tid}: {count_text(commit.added_files, 'file')} came back "
            f"as copies, {commit.removed_files:,} went"
        )


@app.command()
def abort(path: _Path, tid: _Tid, as_json: _Json = False) -> None:
    """Decide a pending transaction against its writer, who can then not commit it any more."""
    with _errors(as_json):
        table = Table(path)
        before = table.show(tid)
        table.abort(tid)
    if as_json:
        garbage = total_json(before.files)
        print_json({"url": table.url, "tid": tid, "state": TransactionState.ABORTED, "garbage": garbage})
    elif before.state is TransactionState.ABORTED:
        say(f"{tid} was aborted already")
    else:
        say(f"aborted {tid}; what it wrote is garbage now: {total_text(before.files)}")


@app.command()
def drop(
    path: _Path,
    everything: Annotated[
        bool, typer.Option("--everything", help="Also where there are commits: all rows go.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: _Json = False,
) -> None:
    """Remove a table that has no commits, such as a first write that failed leaves; or all of a table.

    Takes a minute or more, so that no writer is left. What no transaction wrote stays. Run again, it goes on.
    """
    with _errors(as_json):
        table = Table(path)
        if not yes:
            _confirm(f"Remove the table {table.url}{', with all of its rows' if everything else ''}?")
        with status("removing it; that takes a minute, so that no writer is left"):
            report = table.drop(everything=everything)
    if as_json:
        print_json(drop_json(report))
    else:
        print_drop(report)


@app.command()
def jar(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", show_default=False, help="What to write, such as dbio-commit.jar.")
    ],
    as_json: _Json = False,
) -> None:
    """Write the jar for Spark's setting spark.jars, for a Spark that takes no class at run time.

    Any other gets its classes when it needs them. Compiles them against the PySpark that is installed.
    """
    with _errors(as_json):
        with needs("dbio jar", extra="spark"):
            from dbio_commit.spark.session.jvm import make_jar
        with status("compiling it with Spark"):
            make_jar(file)
    if as_json:
        print_json({"jar": str(file)})
    else:
        say(f"wrote {file}")


def _split(columns: str) -> list[str]:
    return [column.strip() for column in columns.split(",") if column.strip()]


def _is_asked() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty()


def _confirm(question: str) -> None:
    """Raises InvalidInputError where there is nobody to ask, Abort where the answer is no."""
    if not _is_asked():
        raise InvalidInputError("nothing was removed: there is no terminal to ask on; pass --yes")
    typer.confirm(visible(question), abort=True, err=True)


@contextmanager
def _errors(as_json: bool) -> Iterator[None]:
    """What went wrong with the table or the store becomes a message and an exit code; a bug stays a traceback."""
    try:
        yield
    except DbioError as error:
        if as_json:
            print_json({"error": type(error).__name__, "message": str(error)})
        else:
            say_error(one_line(error))
        raise typer.Exit(2 if isinstance(error, InvalidInputError | RetentionError) else 1) from None
