package dbio_commit;

import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat$;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTable$;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType$;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils$;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import scala.Option;
import scala.Some;

/** A dbio table in Spark's own catalog: a name and a location, without columns, which are those of the table. */
class Entry {
  private static final String FILE = "file:";

  private final SparkSession session = Asking.session();
  private final TableIdentifier name;
  private final String location;
  final boolean exists;

  Entry(Identifier ident, String location, boolean exists) {
    this.name = named(ident);
    this.location = location;
    this.exists = exists;
  }

  private static TableIdentifier named(Identifier ident) {
    String[] namespace = ident.namespace();
    return new TableIdentifier(ident.name(), namespace.length == 0 ? Option.empty() : new Some(namespace[0]));
  }

  static boolean isDbio(CatalogTable table) {
    Option provider = table.provider();
    return provider.isDefined() && "dbio".equalsIgnoreCase((String) provider.get());
  }

  /** The URL, or the plain path, of the dbio table with this name; null if the name means something else. */
  static String locationOf(Identifier ident) {
    SessionCatalog catalog = Asking.session().sessionState().catalog();
    try {
      if (ident.namespace().length > 1 || !catalog.tableExists(named(ident))) return null;
      CatalogTable found = catalog.getTableMetadata(named(ident));
      if (!isDbio(found)) return null;
      String location = CatalogUtils$.MODULE$.URIToString(found.location());
      return location.startsWith(FILE) ? location.substring(FILE.length()) : location;
    } catch (Exception e) {
      Platform.throwException(e);
      return null;
    }
  }

  /** Adds the name to Spark's catalog, unless it is there already. */
  void create() {
    if (exists) return;
    try {
      session.sessionState().catalog().createTable(table(), false, false);
    } catch (Exception e) {
      Platform.throwException(e);
    }
  }

  private CatalogTable table() throws ReflectiveOperationException { // the number of parameters differs between versions
    Object[] given = {name, CatalogTableType$.MODULE$.EXTERNAL(), storage(), new StructType(), new Some("dbio")};
    Method[] methods = CatalogTable$.class.getMethods();
    for (int i = 0; i < methods.length; i++) {
      int count = methods[i].getParameterTypes().length;
      if (!methods[i].getName().equals("apply") || count <= given.length) continue;
      Object[] all = new Object[count];
      for (int j = 0; j < count; j++) {
        all[j] = j < given.length ? given[j] : CatalogTable$.class.getMethod("apply$default$" + (j + 1), new Class[0])
            .invoke(CatalogTable$.MODULE$, new Object[0]);
      }
      return (CatalogTable) methods[i].invoke(CatalogTable$.MODULE$, all);
    }
    throw new IllegalStateException("this Spark makes entries of its catalog in a way that dbio does not know");
  }

  private Object storage() throws ReflectiveOperationException {
    CatalogStorageFormat empty = CatalogStorageFormat$.MODULE$.empty();
    Object[] all = new Object[empty.productArity()];
    for (int i = 0; i < all.length; i++) all[i] = empty.productElement(i);
    String url = location.startsWith("/") ? FILE + "//" + location : location;
    all[0] = new Some(CatalogUtils$.MODULE$.stringToURI(url));
    Constructor constructor = CatalogStorageFormat.class.getConstructors()[0];
    return constructor.newInstance(all);
  }
}
