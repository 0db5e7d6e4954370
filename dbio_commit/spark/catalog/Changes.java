package dbio_commit;

import org.apache.spark.sql.catalyst.analysis.TableFunctionRegistry;
import org.apache.spark.sql.catalyst.analysis.TableFunctionRegistry$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.util.DateTimeUtils$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

/**
 * The table function `dbio_changes`. Spark calls it under a lock of the session, so it asks nothing: it names a table of
 * the catalog, whose name has the arguments. Spark then loads this table as any other.
 */
public class Changes extends AbstractFunction1 {
  private static final String NAME = "dbio_changes"; // as `changes.py` has it

  /** Adds the function to a session, and to sessions that are made later. */
  static void addTo(SparkSession session) {
    addTo(session.sessionState().tableFunctionRegistry());
    addTo(TableFunctionRegistry$.MODULE$.builtin()); // which new sessions copy
  }

  private static void addTo(TableFunctionRegistry registry) {
    registry.createOrReplaceTempFunction(NAME, new Changes(), "scala_udf");
  }

  /** The arguments are values, or expressions of values. */
  public Object apply(Object expressions) {
    StringBuilder name = new StringBuilder(NAME);
    for (int i = 0; i < ((scala.collection.Seq) expressions).size(); i++) {
      Expression one = (Expression) ((scala.collection.Seq) expressions).apply(i);
      if (!one.foldable()) {
        throw new IllegalStateException("dbio_commit.InvalidInputError: " + NAME + " takes values that are known before the"
            + " query runs, and " + one.sql() + " is none; give a literal");
      }
      Object value = one.eval(null);
      if (value != null && one.dataType() instanceof TimestampType) {
        value = DateTimeUtils$.MODULE$.microsToInstant(((Long) value).longValue());
      }
      name.append("\0").append(value == null ? "" : value.toString());
    }
    String[] parts = {"dbio", "system", name.toString()}; // Spark takes two parts for a path
    return new UnresolvedRelation((Seq) ArraySeq$.MODULE$.unsafeWrapArray(parts), CaseInsensitiveStringMap.empty(), false);
  }
}
