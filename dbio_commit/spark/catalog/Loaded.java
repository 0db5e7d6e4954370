package dbio_commit;

import java.lang.ref.WeakReference;
import java.util.HashMap;
import org.apache.spark.sql.connector.catalog.Identifier;

/**
 * The tables that each thread has loaded last. From 4.1 on, Spark loads each table of a query twice: to analyse the
 * query, and again when the query runs. The first such refresh after an analysis gets the table of this analysis, so that
 * a query lists the log once. Each later run of the same DataFrame lists it again, and so sees later commits.
 */
class Loaded extends ThreadLocal {
  private static final int MOST = 64; // names of one thread, each of which may belong to a query that never runs

  protected Object initialValue() { return new HashMap(); }

  void put(Identifier ident, SqlTable table) {
    HashMap tables = (HashMap) get();
    if (tables.size() >= MOST) tables.clear();
    tables.put(ident, new WeakReference(table)); // a query that will run holds its table
  }

  SqlTable take(Identifier ident) {
    WeakReference found = (WeakReference) ((HashMap) get()).remove(ident);
    return found == null ? null : (SqlTable) found.get();
  }

  /** Whether Spark is loading the tables of a query that it has analysed before. */
  static boolean isRefresh() {
    StackTraceElement[] callers = new Throwable().getStackTrace();
    for (int i = 0; i < callers.length; i++) {
      if (callers[i].getClassName().startsWith(REFRESH)) return true;
    }
    return false;
  }

  private static final String REFRESH = "org.apache.spark.sql.execution.datasources.v2.V2TableRefreshUtil";
}
