package dbio_commit;

import java.util.HashMap;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/**
 * The table of a CREATE or REPLACE TABLE … AS SELECT: the transaction that writes its rows creates or replaces it. Then
 * `entry`, if any, gives it a name in Spark's catalog.
 */
public class NewTable extends SqlTable implements StagedTable {
  private final String[] namespace;
  private final String tableName;
  private final Definition given;
  private final String mode;
  private final Entry entry;
  private boolean isWritten;

  static NewTable of(String shown, String[] namespace, String name, Definition given, String mode, Entry entry) {
    Rules.addTo(Asking.session());
    String token = Questions.stage(namespace, name, given.partitionColumns, given.settings, mode);
    return new NewTable(shown, token, namespace, name, given, mode, entry);
  }

  private NewTable(
      String shown, String token, String[] namespace, String name, Definition given, String mode, Entry entry) {
    super(shown, token, token, given.columns, String.join("\0", given.partitionColumns), new HashMap());
    this.namespace = namespace;
    this.tableName = name;
    this.given = given;
    this.mode = mode;
    this.entry = entry;
  }

  public String version() { return null; } // so that Spark does not load it again

  void written() { isWritten = true; }
  boolean replaces() { return mode.equals("overwrite"); }

  /** REPLACE TABLE without AS writes no rows. */
  public void commitStagedChanges() {
    if (!isWritten) Questions.create(namespace, tableName, given.columns, given.partitionColumns, given.settings, mode);
    if (entry != null) entry.create();
  }

  public void abortStagedChanges() {}
  public CustomTaskMetric[] reportDriverMetrics() { return new CustomTaskMetric[0]; }
}
