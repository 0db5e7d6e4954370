package dbio_commit;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.Platform;

/**
 * The catalog `dbio`: tables by their paths, as in dbio.`/lake/events`, and by names below the roots that
 * `dbio.enable` got, as in dbio.lake.events. Python finds the tables: see `answers.py`.
 *
 * Janino compiles this room: no lambdas, no generics, and no static methods of interfaces.
 */
public class Catalog extends Calls implements StagingTableCatalog, SupportsNamespaces {
  /** Version of the questions and answers, and of what Python calls. `jvm.py` has the same. */
  public static final String VERSION = "2 for Scala 2.13";

  private final Loaded loaded = new Loaded();
  private String name;

  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
  }

  public String name() { return name; }
  public String[] defaultNamespace() { return new String[0]; }

  // --- tables ---

  public Table loadTable(Identifier ident) throws NoSuchTableException {
    boolean isRefresh = Loaded.isRefresh();
    SqlTable known = isRefresh ? loaded.take(ident) : null;
    if (known != null) return known;
    SqlTable table = load(ident, null, null);
    if (!isRefresh) loaded.put(ident, table);
    return table;
  }

  public Table loadTable(Identifier ident, String version) throws NoSuchTableException {
    return load(ident, version, null);
  }

  public Table loadTable(Identifier ident, long micros) throws NoSuchTableException {
    return load(ident, null, Long.valueOf(micros));
  }

  private SqlTable load(Identifier ident, String version, Long micros) throws NoSuchTableException {
    Rules.addTo(Asking.session());
    Object found = Asking.ask("load", new Object[] {name, ident.namespace(), ident.name(), version, micros});
    if (found != null) {
      ((SqlTable) found).isEarlier = version != null || micros != null;
      return (SqlTable) found;
    }
    NoSuchTableException missing = new NoSuchTableException(ident);
    if (ident.namespace().length > 0) throw missing;
    // Spark takes a NoSuchTableException as a reason to look for a data source "dbio" that reads the path.
    Platform.throwException(new AnalysisException(missing.getErrorClass(), missing.messageParameters()));
    return null;
  }

  public boolean tableExists(Identifier ident) {
    return Asking.ask("exists", new Object[] {ident.namespace(), ident.name()}) != null;
  }

  public Identifier[] listTables(String[] namespace) {
    String[] names = Asking.split(Asking.ask("tables", new Object[] {namespace}));
    Identifier[] found = new Identifier[names.length];
    for (int i = 0; i < names.length; i++) {
      String[] parts = (String[]) Arrays.copyOf(namespace, namespace.length + 1);
      parts[namespace.length] = names[i];
      found[i] = Asking.identifier(parts);
    }
    return found;
  }

  public boolean dropTable(Identifier ident) { return drop(ident, false); }
  public boolean purgeTable(Identifier ident) { return drop(ident, true); }

  private boolean drop(Identifier ident, boolean everything) {
    Object[] asked = {ident.namespace(), ident.name(), Boolean.valueOf(everything)};
    return ((Boolean) Asking.ask("drop", asked)).booleanValue();
  }

  // --- new tables and columns ---

  public Set capabilities() {
    return new HashSet(Arrays.asList(new TableCatalogCapability[] {TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE,
        TableCatalogCapability.SUPPORTS_CREATE_TABLE_WITH_GENERATED_COLUMNS}));
  }

  public Table createTable(Identifier ident, Column[] columns, Transform[] partitions, Map properties)
      throws NoSuchTableException {
    Asking.ask("create", described(ident, columns, partitions, properties, "error"));
    return load(ident, null, null);
  }

  public StagedTable stageCreate(Identifier ident, Column[] columns, Transform[] partitions, Map properties) {
    return staged(ident, columns, partitions, properties, "error");
  }

  public StagedTable stageReplace(Identifier ident, Column[] columns, Transform[] partitions, Map properties) {
    return staged(ident, columns, partitions, properties, "overwrite");
  }

  public StagedTable stageCreateOrReplace(Identifier ident, Column[] columns, Transform[] partitions, Map properties) {
    return staged(ident, columns, partitions, properties, "overwrite");
  }

  // Before Spark 4.0, these are abstract, and not called.
  public Table createTable(Identifier ident, StructType schema, Transform[] by, Map properties) { return null; }
  public StagedTable stageCreate(Identifier ident, StructType schema, Transform[] by, Map properties) { return null; }
  public StagedTable stageReplace(Identifier ident, StructType schema, Transform[] by, Map properties) { return null; }
  public StagedTable stageCreateOrReplace(Identifier ident, StructType schema, Transform[] by, Map properties) { return null; }

  private StagedTable staged(Identifier ident, Column[] columns, Transform[] partitions, Map properties, String mode) {
    Rules.addTo(Asking.session());
    Object[] table = described(ident, columns, partitions, properties, mode);
    return new NewTable(name + "." + ident, (String) Asking.ask("stage", table), (StructType) table[2], (String) table[3], table);
  }

  private static final String DEFAULT = "CURRENT_DEFAULT"; // as Spark has it in the metadata of a column

  private Object[] described(Identifier ident, Column[] columns, Transform[] partitions, Map properties, String mode) {
    StructType schema = new StructType(), known = CatalogV2Util.v2ColumnsToStructType(columns);
    Map settings = new HashMap(properties);
    for (int i = 0; i < columns.length; i++) {
      Column column = columns[i];
      StructField field = new StructField(column.name(), column.dataType(), true, Metadata.empty());
      schema = schema.add(column.comment() == null ? field : field.withComment(column.comment()));
      if (!column.nullable()) settings.put("not_null." + column.name(), "true");
      Metadata own = known.fields()[i].metadata();
      if (own.contains(DEFAULT)) settings.put("default." + column.name(), own.getString(DEFAULT));
      if (column.generationExpression() != null) settings.put("generated." + column.name(), column.generationExpression());
    }
    StringBuilder by = new StringBuilder();
    for (int i = 0; i < partitions.length; i++) {
      if (!partitions[i].name().equals("identity")) {
        throw refused("partitions tables by columns only, and not by " + partitions[i].describe()
            + ": make a generated column of it, and partition by that");
      }
      by.append(i == 0 ? "" : "\0").append(String.join(".", partitions[i].references()[0].fieldNames()));
    }
    return new Object[] {ident.namespace(), ident.name(), schema, by.toString(), settings, mode};
  }

  public Table alterTable(Identifier ident, TableChange[] changes) throws NoSuchTableException {
    Map settings = new HashMap();
    StructType added = new StructType();
    for (int i = 0; i < changes.length; i++) {
      TableChange change = changes[i];
      if (change instanceof TableChange.SetProperty) {
        settings.put(((TableChange.SetProperty) change).property(), ((TableChange.SetProperty) change).value());
      } else if (change instanceof TableChange.RemoveProperty) {
        settings.put(((TableChange.RemoveProperty) change).property(), "");
      } else if (change instanceof TableChange.AddColumn && isPlain((TableChange.AddColumn) change)) {
        TableChange.AddColumn column = (TableChange.AddColumn) change;
        StructField field = new StructField(column.fieldNames()[0], column.dataType(), true, Metadata.empty());
        added = added.add(column.comment() == null ? field : field.withComment(column.comment()));
      } else {
        throw refused("adds columns that may be null, at the end, and changes properties; for another change, overwrite the"
            + " table with dbio.write(df, path, mode='overwrite')");
      }
    }
    Asking.ask("alter", new Object[] {ident.namespace(), ident.name(), added, settings});
    return load(ident, null, null);
  }

  private static boolean isPlain(TableChange.AddColumn column) {
    return column.fieldNames().length == 1 && column.isNullable() && column.position() == null
        && column.defaultValue() == null;
  }

  public void renameTable(Identifier from, Identifier to) {
    throw refused("renames no table: the name of a table is its path");
  }

  private IllegalStateException refused(String message) {
    return new IllegalStateException("dbio_commit.InvalidInputError: the catalog " + name + " " + message);
  }

  // --- namespaces ---

  public String[][] listNamespaces() { return listNamespaces(new String[0]); }

  public String[][] listNamespaces(String[] namespace) {
    String[] names = Asking.split(Asking.ask("namespaces", new Object[] {namespace}));
    String[][] found = new String[names.length][];
    for (int i = 0; i < names.length; i++) {
      found[i] = (String[]) Arrays.copyOf(namespace, namespace.length + 1);
      found[i][namespace.length] = names[i];
    }
    return found;
  }

  public boolean namespaceExists(String[] namespace) {
    return namespace.length == 0 || Asking.ask("place", new Object[] {namespace}) != null;
  }

  public Map loadNamespaceMetadata(String[] namespace) {
    Map found = new HashMap();
    Object place = namespace.length == 0 ? null : Asking.ask("place", new Object[] {namespace});
    if (place != null) found.put("location", place);
    return found;
  }

  public void createNamespace(String[] namespace, Map metadata) {
    throw refused("has a namespace for each root: name the root in dbio.enable(spark, roots={…})");
  }

  public void alterNamespace(String[] namespace, NamespaceChange[] changes) {
    throw refused("stores nothing about namespaces");
  }

  public boolean dropNamespace(String[] namespace, boolean cascade) {
    throw refused("drops no namespace: its tables stay where they are");
  }
}
