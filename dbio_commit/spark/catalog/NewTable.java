package dbio_commit;

import java.util.HashMap;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.types.StructType;

/**
 * The table of a CREATE or REPLACE TABLE … AS SELECT: the transaction that writes its rows creates or replaces it. Then
 * `entry`, if any, gives it a name in Spark's catalog.
 */
public class NewTable extends SqlTable implements StagedTable {
  private final Object[] asked;
  private final Entry entry;
  private boolean isWritten;

  /** `asked` is what the question "create" takes. */
  static NewTable of(String name, Object[] asked, Entry entry) {
    Rules.addTo(Asking.session());
    return new NewTable(name, (String) Asking.ask("stage", asked), (StructType) asked[2], (String) asked[3], asked, entry);
  }

  private NewTable(String name, String token, StructType schema, String by, Object[] asked, Entry entry) {
    super(name, token, token, schema, by, new HashMap());
    this.asked = asked;
    this.entry = entry;
  }

  public String version() { return null; } // so that Spark does not load it again

  void written() { isWritten = true; }
  boolean replaces() { return asked[5].equals("overwrite"); }

  /** REPLACE TABLE without AS writes no rows. */
  public void commitStagedChanges() {
    if (!isWritten) Asking.ask("create", asked);
    if (entry != null) entry.create();
  }

  public void abortStagedChanges() {}
  public CustomTaskMetric[] reportDriverMetrics() { return new CustomTaskMetric[0]; }
}
