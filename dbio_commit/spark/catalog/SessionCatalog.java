package dbio_commit;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
// since org.apache.spark.sql.connector.catalog.constraints.Check:
import org.apache.spark.sql.connector.catalog.TableInfo;
// end
import org.apache.spark.sql.connector.catalog.V1Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;

/**
 * Spark's own catalog `spark_catalog`, in which CREATE TABLE … USING dbio LOCATION gives a dbio table a name. Other tables
 * and views are as they are without this class.
 */
public class SessionCatalog extends DelegatingCatalogExtension implements StagingTableCatalog {
  private static final String[] ROOT = {}; // the namespace of a path

  private final Loaded loaded = new Loaded();

  public Set capabilities() { return Catalog.capabilitiesOf(super.capabilities()); }

  // --- read ---

  public Table loadTable(Identifier ident) throws NoSuchTableException {
    boolean isRefresh = Loaded.isRefresh();
    SqlTable known = isRefresh ? loaded.take(ident) : null;
    if (known != null) return known;
    Table other = null;
    Exception failure = null;
    try {
      other = super.loadTable(ident);
    } catch (NoSuchTableException e) {
      throw e;
    } catch (Exception e) { // Spark knows no data source "dbio"
      failure = e;
    }
    String location = isOrdinary(other) ? null : Entry.locationOf(ident);
    if (location == null) {
      if (failure != null) Platform.throwException(failure);
      return other;
    }
    SqlTable found = load(ident, location, null, null);
    if (!isRefresh) loaded.put(ident, found);
    return found;
  }

  /** Whether it is certainly no dbio table, without another question to the metastore. */
  private static boolean isOrdinary(Table table) {
    if (table instanceof V1Table) return !Entry.isDbio(((V1Table) table).v1Table());
    return table != null && !table.getClass().getName().contains(".python."); // a data source in Python, as dbio is one
  }

  public Table loadTable(Identifier ident, String version) throws NoSuchTableException {
    String location = Entry.locationOf(ident);
    return location == null ? super.loadTable(ident, version) : load(ident, location, version, null);
  }

  public Table loadTable(Identifier ident, long micros) throws NoSuchTableException {
    String location = Entry.locationOf(ident);
    return location == null ? super.loadTable(ident, micros) : load(ident, location, null, Long.valueOf(micros));
  }

  private SqlTable load(Identifier ident, String location, String version, Long micros) {
    Rules.addTo(Asking.session());
    SqlTable found = Questions.load(shown(ident), ROOT, location, version, micros);
    if (found == null) {
      throw Definition.refused(shown(ident) + " is a name of " + location + ", and there is no dbio table: write to it, or"
          + " remove the name with DROP TABLE");
    }
    found.isEarlier = version != null || micros != null;
    return Cached.loaded(found, name(), ident);
  }

  private String shown(Identifier ident) { return name() + "." + String.join(".", ident.namespace()) + "." + ident.name(); }

  // --- new tables ---

  private static boolean isDbio(Map properties) { return "dbio".equalsIgnoreCase((String) properties.get("provider")); }

  public Table createTable(Identifier ident, Column[] columns, Transform[] by, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return isDbio(properties) ? created(ident, Definition.of(columns, by, properties))
        : super.createTable(ident, columns, by, properties);
  }

  public StagedTable stageCreate(Identifier ident, Column[] columns, Transform[] by, Map properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return isDbio(properties) ? staged(ident, Definition.of(columns, by, properties), "error")
        : new OtherTable(this, ident, super.createTable(ident, columns, by, properties));
  }

  public StagedTable stageReplace(Identifier ident, Column[] columns, Transform[] by, Map properties)
      throws NoSuchNamespaceException, NoSuchTableException {
    return stageCreateOrReplace(ident, columns, by, properties);
  }

  public StagedTable stageCreateOrReplace(Identifier ident, Column[] columns, Transform[] by, Map properties)
      throws NoSuchNamespaceException {
    if (isDbio(properties)) return staged(ident, Definition.of(columns, by, properties), "overwrite");
    refuseDbio(ident);
    super.dropTable(ident);
    return otherTable(ident, columns, by, properties);
  }

  private StagedTable otherTable(Identifier ident, Column[] columns, Transform[] by, Map properties)
      throws NoSuchNamespaceException {
    try {
      return new OtherTable(this, ident, super.createTable(ident, columns, by, properties));
    } catch (TableAlreadyExistsException e) {
      Platform.throwException(e);
      return null;
    }
  }

  private void refuseDbio(Identifier ident) {
    if (Entry.locationOf(ident) != null) {
      throw Definition.refused(shown(ident) + " is a name of a dbio table: replace it USING dbio, or remove the name first"
          + " with DROP TABLE");
    }
  }

  // since org.apache.spark.sql.connector.catalog.constraints.Check:
  public Table createTable(Identifier ident, TableInfo info) throws TableAlreadyExistsException, NoSuchNamespaceException {
    return isDbio(info.properties()) ? created(ident, Definition.of(info))
        : ((TableCatalog) delegate).createTable(ident, info);
  }

  public StagedTable stageCreate(Identifier ident, TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return isDbio(info.properties()) ? staged(ident, Definition.of(info), "error")
        : new OtherTable(this, ident, ((TableCatalog) delegate).createTable(ident, info));
  }

  public StagedTable stageReplace(Identifier ident, TableInfo info) throws NoSuchNamespaceException, NoSuchTableException {
    return stageCreateOrReplace(ident, info);
  }

  public StagedTable stageCreateOrReplace(Identifier ident, TableInfo info) throws NoSuchNamespaceException {
    if (isDbio(info.properties())) return staged(ident, Definition.of(info), "overwrite");
    return stageCreateOrReplace(ident, info.columns(), info.partitions(), info.properties());
  }
  // end

  // Before Spark 4.0, these are abstract, and not called.
  public StagedTable stageCreate(Identifier ident, StructType schema, Transform[] by, Map properties) { return null; }
  public StagedTable stageReplace(Identifier ident, StructType schema, Transform[] by, Map properties) { return null; }
  public StagedTable stageCreateOrReplace(Identifier ident, StructType schema, Transform[] by, Map properties) { return null; }

  private Table created(Identifier ident, Definition given) {
    String location = locationOf(ident, given, null);
    if (given.columns.length() > 0) {
      Questions.create(ROOT, location, given.columns, given.partitionColumns, given.settings, "error");
    } else {
      Questions.checkNamed(ROOT, location, given.partitionColumns, given.settings);
    }
    new Entry(ident, location, false).create();
    return load(ident, location, null, null);
  }

  private StagedTable staged(Identifier ident, Definition given, String mode) {
    String known = Entry.locationOf(ident);
    if (known == null && mode.equals("overwrite") && tableExists(ident)) {
      throw Definition.refused(shown(ident) + " is no dbio table: remove it first with DROP TABLE");
    }
    String location = locationOf(ident, given, known);
    return NewTable.of(shown(ident), ROOT, location, given, mode, new Entry(ident, location, known != null));
  }

  /** Where the table is to be; `known` is where it is already. */
  private String locationOf(Identifier ident, Definition given, String known) {
    return Questions.location(shown(ident), (String) given.settings.get("location"), known);
  }

  public Table alterTable(Identifier ident, TableChange[] changes) throws NoSuchTableException {
    String location = Entry.locationOf(ident);
    if (location == null) return super.alterTable(ident, changes);
    Definition given = Definition.of(changes);
    Questions.alter(ROOT, location, given.columns, given.settings, given.comments);
    return load(ident, location, null, null);
  }
}
