package dbio_commit;

import java.util.HashMap;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.types.StructType;

/** The table of a CREATE or REPLACE TABLE … AS SELECT: the transaction that writes its rows creates or replaces it. */
public class NewTable extends SqlTable implements StagedTable {
  private final Object[] described;
  private boolean isWritten;

  NewTable(String name, String token, StructType schema, String partitionColumns, Object[] described) {
    super(name, token, token, schema, partitionColumns, new HashMap());
    this.described = described;
  }

  public String version() { return null; } // so that Spark does not load it again

  void written() { isWritten = true; }

  /** REPLACE TABLE without AS writes no rows. */
  public void commitStagedChanges() { if (!isWritten) Asking.ask("create", described); }

  public void abortStagedChanges() {}
  public CustomTaskMetric[] reportDriverMetrics() { return new CustomTaskMetric[0]; }
}
