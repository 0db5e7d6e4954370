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
  private final String[] described; // as in `TableSource`
  private final String start;
  private final String end;

  Batch(SparkSession session, StructType schema, String[] described, String start, String end) {
    this.session = session;
    this.schema = schema;
    this.described = described;
    this.start = start;
    this.end = end;
  }

  public SQLContext sqlContext() { return session.sqlContext(); }
  public StructType schema() { return schema; }

  LogicalPlan rows() {
    return (LogicalPlan) Asking.ask(session, "feed_rows", new Object[] {described, start, end});
  }
}
