package dbio_commit;

import java.util.function.Function;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.classic.SparkSession$;
import org.apache.spark.unsafe.Platform;

/** Asks the Python process of this driver, over the Bridge that `dbio.enable` has put into the system properties. */
class Asking {
  private static final String BRIDGE = "dbio_commit.catalog", TOPIC = "catalog"; // as in `answers.py`

  static SparkSession session() {
    return (SparkSession) SparkSession$.MODULE$.active();
  }

  static Object ask(String verb, Object[] given) {
    return ask(session(), verb, given);
  }

  /** The answer: an object that Python puts into `asked[0]`, or a text; null for an empty one. */
  static Object ask(SparkSession session, String verb, Object[] given) {
    Function bridge = (Function) System.getProperties().get(BRIDGE);
    if (bridge == null) {
      throw new IllegalStateException("dbio_commit.UnsupportedStoreError: SQL on dbio tables is answered by the Python"
          + " process of the Spark driver, and none has called dbio.enable(spark) here; call it in a classic PySpark"
          + " session, or use the functions of dbio_commit, such as dbio.read");
    }
    Object[] asked = {null, session, given};
    String text = (String) bridge.apply(new Object[] {TOPIC, verb, asked});
    if (asked[0] instanceof Throwable) Platform.throwException((Throwable) asked[0]);
    return asked[0] != null ? asked[0] : text.isEmpty() ? null : text;
  }

  /** The texts in a text with zero bytes between them. */
  static String[] split(Object text) {
    return text == null || ((String) text).isEmpty() ? new String[0] : ((String) text).split("\0");
  }
}
