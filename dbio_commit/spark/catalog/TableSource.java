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
    Questions.feedCheck((SparkSession) context.sparkSession(), Statement.options(options));
    return new Tuple2("dbio", schema.get());
  }

  public Source createSource(SQLContext context, String metadata, Option schema, String provider, Map options) {
    return new Stream((SparkSession) context.sparkSession(), (StructType) schema.get(), Statement.options(options));
  }

  static class Stream implements Source, SupportsTriggerAvailableNow {
    private final SparkSession session;
    private final StructType schema;
    private final Questions.AskedStream stream;
    private String target = ""; // an availableNow query reads up to here
    private String end = ""; // of the last batch that was planned

    Stream(SparkSession session, StructType schema, java.util.Map options) {
      this.session = session;
      this.schema = schema;
      stream = new Questions.AskedStream(UUID.randomUUID().toString(), options, schema);
    }

    public StructType schema() { return schema; }
    public ReadLimit getDefaultReadLimit() { return new Limit(); }
    public void prepareForTriggerAvailableNow() { target = Questions.feedNewest(session, stream); }

    public org.apache.spark.sql.connector.read.streaming.Offset latestOffset(
        org.apache.spark.sql.connector.read.streaming.Offset start, ReadLimit limit) {
      String found = Questions.feedNext(session, stream, text(start), limit instanceof ReadAllAvailable, target);
      if (found == null) return start; // nothing is new
      end = found;
      return new At(found);
    }

    public org.apache.spark.sql.connector.read.streaming.Offset reportLatestOffset() {
      return new At(Questions.feedBehind(session, stream, end));
    }

    /** Not the files yet: when a query starts again, Spark asks for the last batch once more, and does not read it. */
    public Dataset getBatch(Option start, Offset end) {
      String from = start.isDefined() ? text((Offset) start.get()) : "";
      return (Dataset) Dataset$.MODULE$.ofRows(session, Reading.unread(new Batch(session, schema, stream, from, text(end))));
    }

    private static String text(org.apache.spark.sql.connector.read.streaming.Offset offset) {
      return offset == null ? "" : offset.json();
    }

    public Option getOffset() { throw new IllegalStateException("Spark asks for latestOffset"); }
    public org.apache.spark.sql.connector.read.streaming.Offset initialOffset() { return null; }
    public org.apache.spark.sql.connector.read.streaming.Offset deserializeOffset(String json) { return new At(json); }
    public void commit(Offset end) {} // Spark keeps the offset
    public void commit(org.apache.spark.sql.connector.read.streaming.Offset end) {}
    public void stop() { Questions.feedEnd(session, stream); }
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
