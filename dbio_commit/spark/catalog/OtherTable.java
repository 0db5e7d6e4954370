package dbio_commit;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;

/**
 * A new table of another data source in Spark's own catalog, with rows of a query. As in Spark without dbio, the table is
 * there before its rows, and is removed if writing them fails.
 */
public class OtherTable implements StagedTable, SupportsWrite {
  private final TableCatalog catalog;
  private final Identifier ident;
  private final Table table;

  OtherTable(TableCatalog catalog, Identifier ident, Table table) {
    this.catalog = catalog;
    this.ident = ident;
    this.table = table;
  }

  public String name() { return table.name(); }
  public StructType schema() { return table.schema(); }
  public Transform[] partitioning() { return table.partitioning(); }
  public Map properties() { return table.properties(); }
  public Set capabilities() { return table.capabilities(); }
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) { return ((SupportsWrite) table).newWriteBuilder(info); }
  public void commitStagedChanges() {}
  public void abortStagedChanges() { catalog.dropTable(ident); }
  public CustomTaskMetric[] reportDriverMetrics() { return new CustomTaskMetric[0]; }
}
