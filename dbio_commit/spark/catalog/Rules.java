package dbio_commit;

import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.classic.SparkSession;
import scala.collection.immutable.Seq;
import scala.collection.immutable.$colon$colon;

/** Adds the rule, the strategy and the table function of this room to a session, once. */
public class Rules {
  public static synchronized void addTo(SparkSession session) {
    ExperimentalMethods methods = session.experimental();
    if (!has(methods.extraOptimizations(), Reading.class)) {
      methods.extraOptimizations_$eq(new $colon$colon(new Reading(), methods.extraOptimizations().toList()));
    }
    if (!has(methods.extraStrategies(), Statements.class)) {
      methods.extraStrategies_$eq(new $colon$colon(new Statements(), methods.extraStrategies().toList()));
      Changes.addTo(session);
    }
  }

  private static boolean has(Seq found, Class wanted) {
    for (int i = 0; i < found.size(); i++) if (found.apply(i).getClass() == wanted) return true;
    return false;
  }
}
