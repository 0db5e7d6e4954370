package dbio_commit;

import java.util.function.Function;
import org.apache.spark.api.java.function.VoidFunction2;

/** The function of `foreachBatch` in the JVM: passes the number and the rows of each batch to Python, over the bridge. */
public class AskedBatches implements VoidFunction2 {
  /** Version of the question. `jvm.py` has the same. */
  public static final String VERSION = "1 for Scala 2.13";

  private final Function bridge;
  private final String topic;

  public AskedBatches(Function bridge, String topic) {
    this.bridge = bridge;
    this.topic = topic;
  }

  public void call(Object rows, Object batch) {
    bridge.apply(new Object[] {topic, String.valueOf(batch), rows});
  }
}
