package dbio_commit;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsDeleteV2;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.V2TableWithV1Fallback;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.execution.datasources.FileFormat$;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.Seq;

/** One snapshot of a table, for Spark's analyzer and optimizer. Its rows are read by the plan that `Reading` gets. */
public class SqlTable implements SupportsRead, SupportsMetadataColumns, SupportsDeleteV2, SupportsWrite,
    V2TableWithV1Fallback {
  final String name;
  final String id;
  final String token; // by which Python knows the snapshot
  final StructType schema;
  final String[] partitionColumns;
  final Map properties;
  boolean isEarlier; // by VERSION AS OF or TIMESTAMP AS OF
  private Object rows; // what Python reads it by; see `rows`

  public SqlTable(String name, String id, String token, StructType schema, String partitionColumns, Map properties) {
    this.name = name;
    this.id = id;
    this.token = token;
    this.schema = schema;
    this.partitionColumns = Asking.split(partitionColumns);
    this.properties = new HashMap(properties);
  }

  public String name() { return name; }
  public String id() { return id; }
  public String version() { return token; }
  public String token() { return token; }
  public StructType schema() { return schema; }
  public Map properties() { return properties; }

  public Transform[] partitioning() {
    Transform[] found = new Transform[partitionColumns.length];
    for (int i = 0; i < found.length; i++) found[i] = Expressions.identity(quoted(partitionColumns[i]));
    return found;
  }

  public Set capabilities() {
    return new HashSet(Arrays.asList(new TableCapability[] {TableCapability.BATCH_READ, TableCapability.BATCH_WRITE,
        TableCapability.STREAMING_WRITE, TableCapability.TRUNCATE, TableCapability.OVERWRITE_BY_FILTER,
        TableCapability.OVERWRITE_DYNAMIC}));
  }

  /** Tables are equal if their rows are: by this, Spark finds the plans that it has cached. */
  public boolean equals(Object other) { return other instanceof SqlTable && ((SqlTable) other).token.equals(token); }
  public int hashCode() { return token.hashCode(); }
  public String toString() { return name; }

  static String quoted(String name) { return "`" + name.replace("`", "``") + "`"; }

  /** A HadoopFsRelation; or, if Spark cannot reach the files, a LogicalPlan that reads them in Python workers. */
  synchronized Object rows() {
    if (rows == null) {
      rows = Asking.ask("rows", new Object[] {token});
      if (rows instanceof HadoopFsRelation) ((SkippingIndex) ((HadoopFsRelation) rows).location()).table = this;
    }
    return rows;
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new Rows(this);
  }

  /** All rows. Spark's strategy for files chooses columns and files later, when `Reading` has replaced this scan. */
  static class Rows implements ScanBuilder, Scan, SupportsReportStatistics, SupportsRuntimeV2Filtering, Statistics {
    final SqlTable table;

    Rows(SqlTable table) { this.table = table; }

    public Scan build() { return this; }
    public StructType readSchema() { return table.schema; }
    public String description() { return table.name; }
    public Statistics estimateStatistics() { return this; }
    public OptionalLong sizeInBytes() {
      Object rows = table.rows();
      return rows instanceof HadoopFsRelation ? OptionalLong.of(((HadoopFsRelation) rows).sizeInBytes()) : OptionalLong.empty();
    }
    public OptionalLong numRows() { return OptionalLong.empty(); }

    /** The partition columns: for these, Spark plans filters from the other side of a join. */
    public NamedReference[] filterAttributes() {
      NamedReference[] found = new NamedReference[table.partitionColumns.length];
      for (int i = 0; i < found.length; i++) found[i] = Expressions.column(quoted(table.partitionColumns[i]));
      return found;
    }

    public void filter(Predicate[] predicates) {}
    public boolean equals(Object other) { return other instanceof Rows && ((Rows) other).table.equals(table); }
    public int hashCode() { return table.hashCode(); }
  }

  /** For `readStream.table` only: the source that Spark makes a stream out of the table with. */
  public CatalogTable v1Table() { return StreamedTable.of(name, schema, token); }

  // --- INSERT and `toTable`, which Spark's optimizer lets pass for this builder; `Statements` plans them ---

  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) { return new Insert(this, info); }

  static class Insert implements WriteBuilder, SupportsOverwriteV2, SupportsDynamicOverwrite, Write {
    private final SqlTable table;
    private final LogicalWriteInfo info;
    private boolean isComplete;

    Insert(SqlTable table, LogicalWriteInfo info) {
      this.table = table;
      this.info = info;
    }

    public StreamingWrite toStreaming() { return new StreamWrite(table, info, isComplete); }
    public Write build() { return this; }
    public String description() { return "INSERT"; }
    public boolean canOverwrite(Predicate[] predicates) { return true; }
    public WriteBuilder overwrite(Predicate[] predicates) { return this; }
    public WriteBuilder overwriteDynamicPartitions() { return this; }

    public WriteBuilder truncate() {
      isComplete = true;
      return this;
    }
  }

  // --- DELETE, which Spark's analyzer lets pass for this interface; `Statements` plans it ---

  public boolean canDeleteWhere(Predicate[] predicates) { return true; }
  public void deleteWhere(Predicate[] predicates) { throw new IllegalStateException("Statements has not planned this DELETE"); }

  public boolean truncateTable() {
    Asking.ask("truncate", new Object[] {token});
    return true;
  }

  /** `_metadata`, marked in the way by which Spark's strategy for files knows it. */
  public MetadataColumn[] metadataColumns() {
    return new MetadataColumn[] {new FileMetadata()};
  }

  static class FileMetadata implements MetadataColumn {
    public String name() { return FileFormat$.MODULE$.METADATA_NAME(); }
    public boolean isNullable() { return false; }
    public String metadataInJSON() { return "{\"__file_source_metadata_col\":true,\"__metadata_col\":\"_metadata\"}"; }

    public DataType dataType() {
      Seq fields = new ParquetFileFormat().metadataSchemaFields();
      StructType found = new StructType();
      for (int i = 0; i < fields.size(); i++) found = found.add((StructField) fields.apply(i));
      return found;
    }
  }
}
