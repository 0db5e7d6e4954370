package dbio_commit;

import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.execution.CacheManager;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.unsafe.Platform;
import scala.runtime.AbstractPartialFunction;

/**
 * Decides which state of each dbio table a statement that writes reads. Under any name, the target has one state. Spark
 * analyses a table that CACHE TABLE has stored as the stored state, and a write reads the state of now instead.
 */
class States extends AbstractPartialFunction {
  private final SparkSession session;
  private final SqlTable target;

  States(SparkSession session, SqlTable target) {
    this.session = session;
    this.target = target;
  }

  /** The table that an analysed statement changes. */
  static SqlTable ofTarget(SparkSession session, LogicalPlan statement) {
    SqlTable known = Statements.targetOf(statement);
    DataSourceV2Relation relation = Statements.relationOf(statement);
    return relation == null || known instanceof NewTable ? known : ofNow(session, relation);
  }

  /** The dbio table that a plan is; null if it is another plan. */
  static SqlTable tableOf(Object plan) {
    return plan instanceof DataSourceV2Relation ? Statements.sqlTable(((DataSourceV2Relation) plan).table()) : null;
  }

  private static SqlTable ofNow(SparkSession session, DataSourceV2Relation relation) {
    SqlTable known = tableOf(relation);
    CacheManager cache = session.sharedState().cacheManager();
    if (cache.isEmpty() || cache.lookupCachedData((Dataset) Dataset$.MODULE$.ofRows(session, relation)).isEmpty()) return known;
    return loaded(relation);
  }

  private static SqlTable loaded(DataSourceV2Relation relation) {
    if (relation.catalog().isEmpty() || relation.identifier().isEmpty()) return tableOf(relation); // of dbio_changes
    try {
      return (SqlTable) ((TableCatalog) relation.catalog().get()).loadTable((Identifier) relation.identifier().get());
    } catch (NoSuchTableException e) {
      Platform.throwException(e);
      return null;
    }
  }

  public boolean isDefinedAt(Object plan) { return tableOf(plan) != null && !tableOf(plan).isEarlier; }

  public Object applyOrElse(Object plan, scala.Function1 otherwise) {
    if (!isDefinedAt(plan)) return otherwise.apply(plan);
    DataSourceV2Relation relation = (DataSourceV2Relation) plan;
    SqlTable known = tableOf(relation);
    // Before a REPLACE TABLE comes to this, Spark has dropped what CACHE TABLE had stored of the table.
    boolean isReplaced = target instanceof NewTable && ((NewTable) target).replaces();
    SqlTable now = known.id.equals(target.id) ? target : isReplaced ? loaded(relation) : ofNow(session, relation);
    if (now.equals(known)) return plan;
    if (!now.schema.equals(known.schema)) {
      throw new IllegalStateException("dbio_commit.CommitConflictError: the columns or defaults of " + known.name
          + " have changed since Spark analysed this statement, or since its DataFrame was made; nothing was written: run"
          + " it again, and if CACHE TABLE has stored the table, run REFRESH TABLE first");
    }
    Object[] parts = new Object[relation.productArity()];
    for (int i = 1; i < parts.length; i++) parts[i] = relation.productElement(i);
    parts[0] = now;
    return relation.makeCopy(parts);
  }
}
