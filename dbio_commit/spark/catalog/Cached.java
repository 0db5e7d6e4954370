package dbio_commit;

import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.unsafe.Platform;

/**
 * Refreshes what CACHE TABLE has stored of a table, after a commit of this application: under each name of the table, since
 * Spark itself refreshes only the name that a statement uses.
 */
public class Cached {
  private static final List LOADED = new ArrayList(); // weak, since what is cached holds its table
  private static int purgeAt = 1024;

  /** Records by which name a table was loaded. */
  static synchronized SqlTable loaded(SqlTable found, String catalog, Identifier ident) {
    StringBuilder name = new StringBuilder(SqlTable.quoted(catalog));
    for (int i = 0; i < ident.namespace().length; i++) name.append(".").append(SqlTable.quoted(ident.namespace()[i]));
    found.sqlName = name.append(".").append(SqlTable.quoted(ident.name())).toString();
    LOADED.add(new WeakReference(found));
    if (LOADED.size() >= purgeAt) {
      for (Iterator all = LOADED.iterator(); all.hasNext();) if (((WeakReference) all.next()).get() == null) all.remove();
      purgeAt = Math.max(1024, 2 * LOADED.size());
    }
    return found;
  }

  /** Refreshes the table at this place, in this session. */
  public static void refresh(SparkSession session, String location) {
    if (session.sharedState().cacheManager().isEmpty()) return;
    Iterator names = namesOf(location).iterator();
    while (names.hasNext()) {
      try {
        session.catalog().refreshTable((String) names.next());
      } catch (Exception e) {
        if (!(e instanceof AnalysisException)) Platform.throwException(e); // else the name is gone, as by DROP TABLE
      }
    }
  }

  private static synchronized Set namesOf(String location) {
    Set found = new LinkedHashSet();
    for (int i = 0; i < LOADED.size(); i++) {
      SqlTable table = (SqlTable) ((WeakReference) LOADED.get(i)).get();
      if (table != null && location.equals(table.properties.get("location"))) found.add(table.sqlName);
    }
    return found;
  }
}
