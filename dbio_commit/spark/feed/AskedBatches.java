package dbio_commit;

import java.util.function.Function;
import org.apache.spark.api.java.function.VoidFunction2;

/** What Spark calls for each batch of a stream: asks Python over the bridge, with the batch's number and rows. */
public class AskedBatches implements VoidFunction2 {
  /** Of the question; `java/__init__.py` has the same. */
  public static final String VERSION = "1";

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
