package dbio_commit;

import java.time.ZoneId;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsAtomicPartitionManagement;
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
import org.apache.spark.sql.execution.datasources.PartitioningUtils;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.Seq;

/** One snapshot of a table, for Spark's analyzer and optimizer. Its rows are read by the plan that `Reading` gets. */
public class SqlTable implements SupportsRead, SupportsMetadataColumns, SupportsDeleteV2, SupportsWrite,
    SupportsAtomicPartitionManagement, V2TableWithV1Fallback {
  final String name;
  final String id;
  final String token; // by which Python knows the snapshot
  final StructType schema;
  final String[] partitionColumns;
  final Map properties;
  String sqlName; // in SQL, with its catalog
  boolean isEarlier; // by VERSION AS OF or TIMESTAMP AS OF
  boolean isDescribed; // its properties say how large it is
  private boolean hasCounts = true;
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

  /** What `Reads` finds: the state that a query reads as that of now, as `states.py` has it. */
  public String state() { return isEarlier || !hasCounts() ? null : token; }

  /** The rows of changes, in whose plan `Reads` finds states; null for a table. */
  public synchronized Dataset changes() { return hasCounts ? null : (Dataset) rows; }

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
  public boolean equals(Object other) {
    return other instanceof SqlTable && ((SqlTable) other).token.equals(token) && ((SqlTable) other).isDescribed == isDescribed;
  }

  public int hashCode() { return token.hashCode(); }
  public String toString() { return name; }

  /** The place of the table that a plan reads, if it is the name of a dbio table; else null. */
  public static String locationOf(LogicalPlan plan) {
    while (plan instanceof SubqueryAlias) plan = (LogicalPlan) plan.children().head();
    Object table = plan instanceof DataSourceV2Relation ? ((DataSourceV2Relation) plan).table() : null;
    return table instanceof SqlTable ? (String) ((SqlTable) table).properties.get("location") : null;
  }

  static String quoted(String name) { return "`" + name.replace("`", "``") + "`"; }

  /** The place of a column among the partition columns; -1 for another column. */
  int indexOfPartition(String column) { return Arrays.asList(partitionColumns).indexOf(column); }

  /** A HadoopFsRelation; or a Dataset: of changes, or if Spark cannot reach the files. */
  synchronized Object rows() {
    if (rows == null) {
      rows = Questions.rows(token);
      if (rows instanceof HadoopFsRelation) ((SkippingIndex) ((HadoopFsRelation) rows).location()).table = this;
    }
    return rows;
  }

  public synchronized void setRows(Object rows) {
    this.rows = rows;
    hasCounts = false;
  }

  /** Whether Python may know how many rows it has. */
  synchronized boolean hasCounts() { return hasCounts; }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    checkRead(options);
    return new Rows(this);
  }

  /** Before Spark 4.0, `spark.read.option("versionAsOf", tid).table(name)` asks for the table as it is now. */
  void checkRead(CaseInsensitiveStringMap options) {
    if (isEarlier || !options.containsKey("versionAsOf") && !options.containsKey("timestampAsOf")) return;
    throw new IllegalStateException("dbio_commit.UnsupportedStoreError: the options versionAsOf and timestampAsOf of"
        + " spark.read.table need Spark 4.0 or later; use VERSION AS OF or TIMESTAMP AS OF in SQL");
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

  // --- partitions ---

  private Map partitions; // by the row of their values: these values as texts, as Python has them

  private Map partitions() {
    if (partitions == null) {
      Map found = new HashMap();
      StructType types = partitionSchema();
      String[] texts = Questions.partitions(token);
      for (int start = 0; start + types.length() <= texts.length; start += types.length()) {
        Object[] values = new Object[types.length()];
        for (int i = 0; i < values.length; i++) {
          values[i] = PartitioningUtils.castPartValueToDesiredType(types.fields()[i].dataType(), texts[start + i], UTC);
        }
        found.put(new GenericInternalRow(values), Arrays.copyOfRange(texts, start, start + values.length));
      }
      partitions = found;
    }
    return partitions;
  }

  private static final ZoneId UTC = ZoneId.of("UTC");

  public StructType partitionSchema() {
    StructType found = new StructType();
    for (int i = 0; i < partitionColumns.length; i++) found = found.add(schema.apply(partitionColumns[i]));
    return found;
  }

  /** The partitions that have these values in these columns. */
  public InternalRow[] listPartitionIdentifiers(String[] names, InternalRow wanted) {
    StructType types = partitionSchema();
    List found = new ArrayList();
    Iterator all = partitions().keySet().iterator();
    while (all.hasNext()) {
      InternalRow one = (InternalRow) all.next();
      boolean fits = true;
      for (int i = 0; i < names.length; i++) {
        int column = types.fieldIndex(names[i]);
        DataType type = types.fields()[column].dataType();
        fits = fits && Objects.equals(one.get(column, type), wanted.get(i, type));
      }
      if (fits) found.add(one);
    }
    return (InternalRow[]) found.toArray(new InternalRow[0]);
  }

  public boolean dropPartitions(InternalRow[] idents) {
    String[][] texts = new String[idents.length][];
    for (int i = 0; i < idents.length; i++) {
      texts[i] = (String[]) partitions().get(idents[i]);
      if (texts[i] == null) return false;
    }
    Questions.dropPartitions(token, texts);
    return true;
  }

  public boolean truncatePartitions(InternalRow[] idents) { return dropPartitions(idents); }
  public Map loadPartitionMetadata(InternalRow ident) { return new HashMap(); }

  // Janino calls no defaults of interfaces, and so needs those of one partition.
  public boolean dropPartition(InternalRow ident) { return dropPartitions(new InternalRow[] {ident}); }
  public boolean truncatePartition(InternalRow ident) { return dropPartition(ident); }

  public void createPartition(InternalRow ident, Map properties) { createPartitions(null, null); }

  public void createPartitions(InternalRow[] idents, Map[] properties) {
    throw Definition.refused("a partition of a dbio table is there as soon as it has rows: insert some");
  }

  public void replacePartitionMetadata(InternalRow ident, Map properties) {
    throw Definition.refused("a partition of a dbio table has no properties");
  }

  // --- DESCRIBE EXTENDED ---

  /** The same table, whose properties also say how large it is. */
  SqlTable described() {
    Map facts = new HashMap(properties);
    String[] texts = Questions.facts(token);
    for (int i = 0; i + 1 < texts.length; i += 2) facts.put(texts[i], texts[i + 1]);
    SqlTable found = new SqlTable(name, id, token, schema, String.join("\0", partitionColumns), facts);
    found.isDescribed = true;
    return found;
  }

  public boolean truncateTable() {
    Questions.truncate(token);
    return true;
  }

  /** `_metadata`, marked in the way by which Spark's strategy for files knows it. */
  public MetadataColumn[] metadataColumns() {
    return new MetadataColumn[] {new FileMetadata()};
  }

  static class FileMetadata implements MetadataColumn {
    static final String NAME = FileFormat$.MODULE$.METADATA_NAME();
    static final String MARK = "{\"__file_source_metadata_col\":true,\"__metadata_col\":\"_metadata\"}";

    public String name() { return NAME; }
    public boolean isNullable() { return false; }
    public String metadataInJSON() { return MARK; } // not read before Spark 4.0

    public DataType dataType() {
      Seq fields = new ParquetFileFormat().metadataSchemaFields();
      StructType found = new StructType();
      for (int i = 0; i < fields.size(); i++) found = found.add((StructField) fields.apply(i));
      return found;
    }
  }
}
