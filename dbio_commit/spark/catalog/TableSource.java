package dbio_commit;

import java.util.UUID;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.streaming.Offset;
import org.apache.spark.sql.execution.streaming.Source;
import org.apache.spark.sql.sources.StreamSourceProvider;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Map;

/**
 * Streams out of a table of the catalog: `SqlTable.v1Table` names this class as the provider. Python says where a batch ends
 * and which files it has, see `feeds.py`, and Spark's own reader reads them, see `Batch`.
 */
public class TableSource implements StreamSourceProvider {
  public Tuple2 sourceSchema(SQLContext context, Option schema, String provider, Map options) {
    Asking.ask((SparkSession) context.sparkSession(), "feed", new Object[] {Statement.options(options)}); // refuses bad options
    return new Tuple2("dbio", schema.get());
  }

  public Source createSource(SQLContext context, String metadata, Option schema, String provider, Map options) {
    return new Stream((SparkSession) context.sparkSession(), (StructType) schema.get(), Statement.options(options));
  }

  static class Stream implements Source, SupportsTriggerAvailableNow {
    private final SparkSession session;
    private final StructType schema;
    private final String[] described; // by which Python knows the stream: an id, the options, and the columns
    private String target = ""; // an availableNow query reads up to here
    private String end = ""; // of the last batch that was planned

    Stream(SparkSession session, StructType schema, String options) {
      this.session = session;
      this.schema = schema;
      described = new String[] {UUID.randomUUID().toString(), options, schema.json()};
    }

    private Object ask(String verb, Object first, Object second) {
      return Asking.ask(session, verb, new Object[] {described, first, second});
    }

    public StructType schema() { return schema; }
    public ReadLimit getDefaultReadLimit() { return new Limit(); }
    public void prepareForTriggerAvailableNow() { target = (String) ask("feed_newest", null, null); }

    public org.apache.spark.sql.connector.read.streaming.Offset latestOffset(
        org.apache.spark.sql.connector.read.streaming.Offset start, ReadLimit limit) {
      String options = limit instanceof ReadAllAvailable ? "unlimited" : "";
      String found = (String) ask("feed_next", text(start), new String[] {options, target});
      if (found == null) return start; // nothing is new
      end = found;
      return new At(found);
    }

    public org.apache.spark.sql.connector.read.streaming.Offset reportLatestOffset() {
      return new At((String) ask("feed_behind", end, null));
    }

    /** Not the files yet: when a query starts again, Spark asks for the last batch once more, and does not read it. */
    public Dataset getBatch(Option start, Offset end) {
      String from = start.isDefined() ? text((Offset) start.get()) : "";
      return (Dataset) Dataset$.MODULE$.ofRows(session, Reading.unread(new Batch(session, schema, described, from, text(end))));
    }

    private static String text(org.apache.spark.sql.connector.read.streaming.Offset offset) {
      return offset == null ? "" : offset.json();
    }

    public Option getOffset() { throw new IllegalStateException("Spark asks for latestOffset"); }
    public org.apache.spark.sql.connector.read.streaming.Offset initialOffset() { return null; }
    public org.apache.spark.sql.connector.read.streaming.Offset deserializeOffset(String json) { return new At(json); }
    public void commit(Offset end) {} // Spark keeps the offset
    public void commit(org.apache.spark.sql.connector.read.streaming.Offset end) {}
    public void stop() { ask("feed_end", null, null); }
    public String toString() { return "dbio"; }
  }

  /** The limit in the options of the stream. */
  static class Limit implements ReadLimit {}

  static class At extends Offset {
    private final String json;

    At(String json) { this.json = json; }

    public String json() { return json; }
  }
}
