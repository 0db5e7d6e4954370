package dbio_commit;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import scala.collection.immutable.Seq;

/** DataFrames for the expressions of a statement: their columns have the ids that the expressions use. */
public class Frames {
  /** The rows; columns get the ids of the attributes with their names, other columns keep their ids. */
  public static Dataset named(SparkSession session, Dataset rows, Seq attributes) {
    return (Dataset) Dataset$.MODULE$.ofRows(session, Reading.named((LogicalPlan) rows.queryExecution().analyzed(), attributes));
  }

  /** The rows; the first columns get the ids of the attributes, one by one. */
  public static Dataset inOrder(SparkSession session, Dataset rows, Seq attributes) {
    return (Dataset) Dataset$.MODULE$.ofRows(session, Reading.inOrder((LogicalPlan) rows.queryExecution().analyzed(), attributes));
  }
}
