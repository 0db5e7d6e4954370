package dbio_commit;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.CatalogV2Implicits;
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
// since org.apache.spark.sql.connector.catalog.constraints.Check:
import org.apache.spark.sql.connector.catalog.TableInfo;
// end
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.Platform;

/**
 * The catalog `dbio`: tables by their paths, as in dbio.`/lake/events`, and by names below the roots that
 * `dbio.enable` got, as in dbio.lake.events. Python finds the tables: see `questions.py`.
 *
 * Janino compiles this room: no lambdas, no generics, and no static methods of interfaces.
 */
public class Catalog extends Calls implements StagingTableCatalog, SupportsNamespaces {
  /** Version of the questions and answers, and of what Python calls. `jvm.py` has the same. */
  public static final String VERSION = "5 for Scala 2.13";

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
    SqlTable found = Questions.load(shown(ident), ident.namespace(), ident.name(), version, micros);
    if (found != null) {
      found.isEarlier = version != null || micros != null;
      return Cached.loaded(found, name, ident);
    }
    NoSuchTableException missing = new NoSuchTableException(ident);
    if (ident.namespace().length > 0) throw missing;
    // Spark takes a NoSuchTableException as a reason to look for a data source "dbio" that reads the path.
    Platform.throwException(new AnalysisException(missing.getErrorClass(), missing.messageParameters()));
    return null;
  }

  private String shown(Identifier ident) {
    StringBuilder found = new StringBuilder(name);
    for (int i = 0; i < ident.namespace().length; i++) found.append(".").append(ident.namespace()[i]);
    return found.append(".").append(ident.name()).toString();
  }

  public boolean tableExists(Identifier ident) { return Questions.exists(ident.namespace(), ident.name()); }

  public Identifier[] listTables(String[] namespace) {
    String[] names = Questions.tablesIn(namespace);
    Identifier[] found = new Identifier[names.length];
    for (int i = 0; i < names.length; i++) {
      String[] parts = (String[]) Arrays.copyOf(namespace, namespace.length + 1);
      parts[namespace.length] = names[i];
      found[i] = Asking.identifier(parts);
    }
    return found;
  }

  public boolean dropTable(Identifier ident) { return Questions.drop(ident.namespace(), ident.name(), false); }
  public boolean purgeTable(Identifier ident) { return Questions.drop(ident.namespace(), ident.name(), true); }

  // --- new tables and columns ---

  public Set capabilities() { return capabilitiesOf(new HashSet()); }

  /** These capabilities, and what the grammar of new tables needs. Before Spark 4.1, there are no constraints. */
  static Set capabilitiesOf(Set others) {
    Set found = new HashSet(others);
    TableCatalogCapability[] all = TableCatalogCapability.values();
    for (int i = 0; i < all.length; i++) if (GRAMMAR.contains(all[i].name())) found.add(all[i]);
    return found;
  }

  private static final List GRAMMAR = Arrays.asList(new String[] {"SUPPORT_COLUMN_DEFAULT_VALUE",
      "SUPPORTS_CREATE_TABLE_WITH_GENERATED_COLUMNS", "SUPPORT_TABLE_CONSTRAINT"});

  public Table createTable(Identifier ident, Column[] columns, Transform[] partitions, Map properties)
      throws NoSuchTableException {
    return created(ident, Definition.of(columns, partitions, properties));
  }

  public StagedTable stageCreate(Identifier ident, Column[] columns, Transform[] partitions, Map properties) {
    return staged(ident, Definition.of(columns, partitions, properties), "error");
  }

  public StagedTable stageReplace(Identifier ident, Column[] columns, Transform[] partitions, Map properties) {
    return staged(ident, Definition.of(columns, partitions, properties), "overwrite");
  }

  public StagedTable stageCreateOrReplace(Identifier ident, Column[] columns, Transform[] partitions, Map properties) {
    return staged(ident, Definition.of(columns, partitions, properties), "overwrite");
  }

  // since org.apache.spark.sql.connector.catalog.constraints.Check:
  public Table createTable(Identifier ident, TableInfo info) throws NoSuchTableException {
    return created(ident, Definition.of(info));
  }

  public StagedTable stageCreate(Identifier ident, TableInfo info) {
    return staged(ident, Definition.of(info), "error");
  }

  public StagedTable stageReplace(Identifier ident, TableInfo info) {
    return staged(ident, Definition.of(info), "overwrite");
  }

  public StagedTable stageCreateOrReplace(Identifier ident, TableInfo info) {
    return staged(ident, Definition.of(info), "overwrite");
  }
  // end

  // Before Spark 4.0, these are abstract, and not called.
  public Table createTable(Identifier ident, StructType schema, Transform[] by, Map properties) { return null; }
  public StagedTable stageCreate(Identifier ident, StructType schema, Transform[] by, Map properties) { return null; }
  public StagedTable stageReplace(Identifier ident, StructType schema, Transform[] by, Map properties) { return null; }
  public StagedTable stageCreateOrReplace(Identifier ident, StructType schema, Transform[] by, Map properties) { return null; }

  private Table created(Identifier ident, Definition given) throws NoSuchTableException {
    Questions.create(ident.namespace(), ident.name(), given.columns, given.partitionColumns, given.settings, "error");
    return load(ident, null, null);
  }

  private StagedTable staged(Identifier ident, Definition given, String mode) {
    return NewTable.of(shown(ident), ident.namespace(), ident.name(), given, mode, null);
  }

  public Table alterTable(Identifier ident, TableChange[] changes) throws NoSuchTableException {
    Definition given = Definition.of(changes);
    Questions.alter(ident.namespace(), ident.name(), given.columns, given.settings, given.comments);
    return load(ident, null, null);
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
    String[] names = Questions.namespacesIn(namespace);
    String[][] found = new String[names.length][];
    for (int i = 0; i < names.length; i++) {
      found[i] = (String[]) Arrays.copyOf(namespace, namespace.length + 1);
      found[i][namespace.length] = names[i];
    }
    return found;
  }

  public boolean namespaceExists(String[] namespace) {
    return namespace.length == 0 || Questions.placeOf(namespace) != null;
  }

  public Map loadNamespaceMetadata(String[] namespace) {
    Map found = new HashMap();
    String place = namespace.length == 0 ? null : Questions.placeOf(namespace);
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
