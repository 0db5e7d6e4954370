package dbio_commit;

import java.lang.reflect.Constructor;
import java.util.Arrays;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import scala.None$;
import scala.collection.immutable.ArraySeq$;
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

  /** The same rows, which are taken into memory now. */
  public static Dataset collected(SparkSession session, Dataset rows) {
    InternalRow[] all = rows.queryExecution().executedPlan().executeCollect();
    return (Dataset) Dataset$.MODULE$.ofRows(session, local(((LogicalPlan) rows.queryExecution().analyzed()).output(), all));
  }

  /** A plan of rows in memory. */
  static LogicalPlan local(Seq attributes, InternalRow[] rows) {
    Constructor constructor = LocalRelation.class.getConstructors()[0];
    Object[] given = {attributes, ArraySeq$.MODULE$.unsafeWrapArray(rows), Boolean.FALSE, None$.MODULE$}; // the last since 4.0
    try {
      return (LogicalPlan) constructor.newInstance(Arrays.copyOf(given, constructor.getParameterTypes().length));
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }
}
