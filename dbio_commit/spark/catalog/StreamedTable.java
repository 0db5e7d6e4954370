package dbio_commit;

import java.lang.reflect.Constructor;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat$;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTable$;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType$;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** A table in the form in which Spark asks a source for a stream. No catalog has such an entry. */
class StreamedTable {
  /** `TableSource` gets the token as this option. `feeds.py` has the same. */
  private static final String TOKEN = "__dbio_table";

  static CatalogTable of(String name, StructType schema, String token) {
    Object[] known = {new TableIdentifier(name, Option.apply("dbio")), CatalogTableType$.MODULE$.EXTERNAL(), storage(token),
        schema, Option.apply(TableSource.class.getName())};
    Constructor made = CatalogTable.class.getConstructors()[0];
    Object[] given = new Object[made.getParameterTypes().length]; // whose number differs between versions of Spark
    try {
      for (int i = 0; i < given.length; i++) {
        String otherwise = "$lessinit$greater$default$" + (i + 1);
        given[i] = i < known.length ? known[i]
            : CatalogTable$.class.getMethod(otherwise, new Class[0]).invoke(CatalogTable$.MODULE$, new Object[0]);
      }
      return (CatalogTable) made.newInstance(given);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  private static Object storage(String token) {
    CatalogStorageFormat empty = CatalogStorageFormat$.MODULE$.empty();
    Object[] given = new Object[empty.productArity()];
    for (int i = 0; i < given.length; i++) given[i] = empty.productElement(i);
    given[5] = empty.properties().updated(TOKEN, token);
    try {
      return CatalogStorageFormat.class.getConstructors()[0].newInstance(given);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }
}
