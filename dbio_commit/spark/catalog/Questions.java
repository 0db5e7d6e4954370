package dbio_commit;

import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * All that this room asks Python. `questions.py` has the same list: each question by the same name, with the same
 * parameters. Without a session, the active one asks. A table of a query is named by its token.
 */
class Questions {
  // --- tables by their names, which are parts; a path is one part ---

  /** The table as a query shows it, or the rows of `dbio_changes`; null if there is none. */
  static SqlTable load(String shown, String[] namespace, String name, String version, Long micros) {
    return (SqlTable) Asking.ask("load", new Object[] {shown, namespace, name, version, micros});
  }

  /** Whether a query finds the table. */
  static boolean exists(String[] namespace, String name) {
    return ((Boolean) Asking.ask("exists", new Object[] {namespace, name})).booleanValue();
  }

  /** Whether the table was there, and was dropped. */
  static boolean drop(String[] namespace, String name, boolean everything) {
    return ((Boolean) Asking.ask("drop", new Object[] {namespace, name, Boolean.valueOf(everything)})).booleanValue();
  }

  /** Creates or replaces a table without rows. */
  static void create(String[] namespace, String name, StructType columns, String[] by, Map settings, String mode) {
    Asking.ask("create", new Object[] {namespace, name, columns, by, settings, mode});
  }

  /** The token of a table that `insert` will create or replace with its rows. */
  static String stage(String[] namespace, String name, String[] by, Map settings, String mode) {
    return (String) Asking.ask("stage", new Object[] {namespace, name, by, settings, mode});
  }

  /** Adds columns, or changes settings or comments. */
  static void alter(String[] namespace, String name, StructType added, Map settings, Map comments) {
    Asking.ask("alter", new Object[] {namespace, name, added, settings, comments});
  }

  /** Checks that there is a table to which CREATE TABLE without columns can give a name. */
  static void checkNamed(String[] namespace, String name, String[] by, Map settings) {
    Asking.ask("check_named", new Object[] {namespace, name, by, settings});
  }

  /** Where a table with a name in Spark's own catalog is to be; `known` is where it is already. */
  static String location(String shown, String given, String known) {
    return (String) Asking.ask("location", new Object[] {shown, given, known});
  }

  /** The names of the tables directly in the namespace. */
  static String[] tablesIn(String[] namespace) { return Asking.split(Asking.ask("tables_in", new Object[] {namespace})); }

  /** The names of the namespaces directly in the namespace. */
  static String[] namespacesIn(String[] namespace) {
    return Asking.split(Asking.ask("namespaces_in", new Object[] {namespace}));
  }

  /** The path of a namespace; null if there is none. */
  static String placeOf(String[] namespace) { return (String) Asking.ask("place_of", new Object[] {namespace}); }

  // --- reads ---

  /** The table at this URL, for reads of Parquet; null if it is being dropped. */
  static SqlTable loadForFiles(SparkSession session, String root) {
    return (SqlTable) Asking.ask(session, "load_for_files", new Object[] {root});
  }

  /** A HadoopFsRelation with the rows; or a Dataset, if Spark itself cannot read them. */
  static Object rows(String token) { return Asking.ask("rows", new Object[] {token}); }

  /** The rows of a table of `loadForFiles`, with these columns. */
  static HadoopFsRelation rowsAs(SparkSession session, String token, StructType columns, Map options) {
    return (HadoopFsRelation) Asking.ask(session, "rows_as", new Object[] {token, columns, options});
  }

  /** The files of a table of `loadForFiles` below these directories. */
  static FileIndex files(SparkSession session, String token, String[] below) {
    return (FileIndex) Asking.ask(session, "files", new Object[] {token, below});
  }

  /** The visible files of a directory of DBIO at this URL; null if it is being dropped. */
  static FileIndex directory(SparkSession session, String root) {
    return (FileIndex) Asking.ask(session, "directory", new Object[] {root});
  }

  /** Which files no row of the condition can be in: "leave" and their paths, or "keep" and the others. */
  static String[] skip(SparkSession session, String token, String condition) {
    return Asking.split(Asking.ask(session, "skip", new Object[] {token, condition}));
  }

  /** Which files may have the least and the greatest values of these columns, as `skip`; empty for all files. */
  static String[] extremes(String token, String[] least, String[] greatest) {
    return Asking.split(Asking.ask("extremes", new Object[] {token, least, greatest}));
  }

  /** The numbers of rows, and of values of these columns, as sizes of files; null if they are not known. */
  static FileIndex counts(String token, String[] columns) {
    return (FileIndex) Asking.ask("counts", new Object[] {token, columns});
  }

  /** The values of the partition columns of each partition, one after the other. */
  static String[] partitions(String token) { return Asking.split(Asking.ask("partitions", new Object[] {token})); }

  /** How large the table is: names of properties and their values in turns. */
  static String[] facts(String token) { return Asking.split(Asking.ask("facts", new Object[] {token})); }

  // --- statements that write ---

  /** Removes all rows. */
  static void truncate(String token) { Asking.ask("truncate", new Object[] {token}); }

  /** Removes the rows of these partitions, each with its values as `partitions` gives them. */
  static void dropPartitions(String token, String[][] partitions) {
    Asking.ask("drop_partitions", new Object[] {token, partitions});
  }

  static void delete(SparkSession session, String token, Analysed statement, Piece where) {
    Asking.ask(session, "delete", new Object[] {token, statement, where});
  }

  static void update(SparkSession session, String token, Analysed statement, Piece where, NewValue[] values) {
    Asking.ask(session, "update", new Object[] {token, statement, where, values});
  }

  /** `columns` are those of the source in the statement, whose rows are in `source`. */
  static void merge(SparkSession session, String token, Analysed statement, Seq columns, Dataset source, Piece on,
      MergeClause[] clauses) {
    Asking.ask(session, "merge", new Object[] {token, statement, columns, source, on, clauses});
  }

  /** INSERT and saveAsTable. `where`: the rows for which it holds are replaced; null in other modes, or if all are. */
  static void insert(SparkSession session, String token, Analysed statement, String mode, Piece where, Dataset rows,
      Map options) {
    Asking.ask(session, "insert", new Object[] {token, statement, mode, where, rows, options});
  }

  /** Adds constraints, which are settings. */
  static void constrain(SparkSession session, String token, Map settings) {
    Asking.ask(session, "constrain", new Object[] {token, settings});
  }

  /** An analysed statement, its target, and the columns of the target. */
  static class Analysed extends Asking.Parts {
    Analysed(LogicalPlan statement, LogicalPlan target, Seq columns) { super(new Object[] {statement, target, columns}); }
  }

  /** What is set, as `Piece.keyOf` says; its value; and the column that it is in, or null if it is a column. */
  static class NewValue extends Asking.Parts {
    NewValue(String key, Piece value, Piece column) { super(new Object[] {key, value, column}); }
  }

  /** One clause of a MERGE. `where` is null if there is no condition, and `values` if the action has none. */
  static class MergeClause extends Asking.Parts {
    MergeClause(String rows, String action, Piece where, NewValue[] values) { super(new Object[] {rows, action, where, values}); }
  }

  // --- streams ---

  /** Refuses bad options of a stream out of a table. */
  static void feedCheck(SparkSession session, Map options) { Asking.ask(session, "feed_check", new Object[] {options}); }

  /** The offset of the newest commit. */
  static String feedNewest(SparkSession session, AskedStream stream) {
    return (String) Asking.ask(session, "feed_newest", new Object[] {stream});
  }

  /** The offset at which the next batch ends, at most `target`; null if nothing is new. An offset may be "". */
  static String feedNext(SparkSession session, AskedStream stream, String start, boolean unlimited, String target) {
    return (String) Asking.ask(session, "feed_next", new Object[] {stream, start, Boolean.valueOf(unlimited), target});
  }

  /** What is behind this offset, for reports of progress. */
  static String feedBehind(SparkSession session, AskedStream stream, String end) {
    return (String) Asking.ask(session, "feed_behind", new Object[] {stream, end});
  }

  /** The plan that reads the rows of a batch. */
  static LogicalPlan feedRows(SparkSession session, AskedStream stream, String start, String end) {
    return (LogicalPlan) Asking.ask(session, "feed_rows", new Object[] {stream, start, end});
  }

  /** Forgets the stream. */
  static void feedEnd(SparkSession session, AskedStream stream) { Asking.ask(session, "feed_end", new Object[] {stream}); }

  /** Writes a batch of a stream into a table. */
  static void writeBatch(SparkSession session, String token, Dataset rows, String query, long batch, boolean isComplete,
      Map options) {
    Asking.ask(session, "write_batch",
        new Object[] {token, rows, query, Long.valueOf(batch), Boolean.valueOf(isComplete), options});
  }

  /** A stream out of a table. If Python has forgotten the id, it makes the stream again. */
  static class AskedStream extends Asking.Parts {
    AskedStream(String id, Map options, StructType columns) { super(new Object[] {id, options, columns}); }
  }

  // --- procedures and errors ---

  /** The names of the procedures. */
  static String[] procedures() { return Asking.split(Asking.ask("procedures", new Object[0])); }

  /** The comment of a procedure, then four texts for each parameter: see `Procedure`. */
  static String[] procedure(String name) { return Asking.split(Asking.ask("procedure", new Object[] {name})); }

  /** Runs a procedure. Returns its rows. */
  static Dataset call(String catalog, String name, Object[] arguments) {
    return (Dataset) Asking.ask("call", new Object[] {catalog, name, arguments});
  }

  /** What to type instead of this statement of another format; null if dbio does not know it. */
  static String advice(SparkSession session, String statement) {
    return (String) Asking.ask(session, "advice", new Object[] {statement});
  }
}
