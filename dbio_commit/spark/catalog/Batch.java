package dbio_commit;

import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.types.StructType;

/** The rows of a batch of a stream. `Reading` puts a plan that reads them in the place of this. */
public class Batch extends BaseRelation {
  final SparkSession session;
  private final StructType schema;
  private final Questions.AskedStream stream;
  private final String start;
  private final String end;

  Batch(SparkSession session, StructType schema, Questions.AskedStream stream, String start, String end) {
    this.session = session;
    this.schema = schema;
    this.stream = stream;
    this.start = start;
    this.end = end;
  }

  public SQLContext sqlContext() { return session.sqlContext(); }
  public StructType schema() { return schema; }

  LogicalPlan rows() { return Questions.feedRows(session, stream, start, end); }
}
