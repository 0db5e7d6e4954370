package dbio_commit;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression$;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractPartialFunction;

/** If a query wants only the least and greatest values of columns, it reads only files in which these may be. */
class Extremes extends AbstractPartialFunction {
  public boolean isDefinedAt(Object plan) { return plan instanceof Aggregate && found((Aggregate) plan) != null; }

  public Object applyOrElse(Object plan, scala.Function1 otherwise) {
    LogicalPlan found = plan instanceof Aggregate ? found((Aggregate) plan) : null;
    return found == null ? otherwise.apply(plan) : found;
  }

  private static LogicalPlan found(Aggregate aggregate) {
    DataSourceV2ScanRelation scan = scanOf(aggregate.child());
    if (scan == null || aggregate.groupingExpressions().nonEmpty()) return null;
    SqlTable table = ((SqlTable.Rows) scan.scan()).table;
    List least = new ArrayList(), greatest = new ArrayList();
    for (int i = 0; i < aggregate.aggregateExpressions().size(); i++) {
      if (!isExtreme((Expression) aggregate.aggregateExpressions().apply(i), table, least, greatest)) return null;
    }
    if (least.isEmpty() && greatest.isEmpty() || !table.hasCounts() || !(table.rows() instanceof HadoopFsRelation)) return null;
    String[] chosen = Questions.extremes(
        table.token, (String[]) least.toArray(new String[0]), (String[]) greatest.toArray(new String[0]));
    if (chosen.length == 0) return null;
    HadoopFsRelation all = (HadoopFsRelation) table.rows();
    HadoopFsRelation some = new HadoopFsRelation(((SkippingIndex) all.location()).only(chosen),
        all.partitionSchema(), all.dataSchema(), all.bucketSpec(), all.fileFormat(), all.options(), all.sparkSession());
    return with(aggregate, Reading.relation(some, scan.output()));
  }

  /** The scan below, if the plan only chooses columns on the way. */
  private static DataSourceV2ScanRelation scanOf(LogicalPlan plan) {
    if (plan instanceof DataSourceV2ScanRelation) {
      return ((DataSourceV2ScanRelation) plan).scan() instanceof SqlTable.Rows ? (DataSourceV2ScanRelation) plan : null;
    }
    if (!(plan instanceof Project)) return null;
    Seq list = ((Project) plan).projectList();
    for (int i = 0; i < list.size(); i++) if (!(list.apply(i) instanceof Attribute)) return null;
    return scanOf(((Project) plan).child());
  }

  private static LogicalPlan with(LogicalPlan plan, LogicalPlan relation) {
    if (plan instanceof DataSourceV2ScanRelation) return relation;
    Object[] child = {with((LogicalPlan) plan.children().head(), relation)};
    return (LogicalPlan) plan.withNewChildren((Seq) ArraySeq$.MODULE$.unsafeWrapArray(child));
  }

  /** Whether all that it aggregates are least and greatest values of columns in files, which it adds to the lists. */
  private static boolean isExtreme(Expression it, SqlTable table, List least, List greatest) {
    if (it instanceof AggregateExpression) {
      AggregateFunction function = ((AggregateExpression) it).aggregateFunction();
      boolean isKnown = function instanceof Min || function instanceof Max;
      if (!isKnown || ((AggregateExpression) it).filter().isDefined()) return false;
      Object column = function.children().head();
      if (!(column instanceof Attribute) || table.indexOfPartition(((Attribute) column).name()) >= 0) return false;
      (function instanceof Max ? greatest : least).add(((Attribute) column).name());
      return true;
    }
    if (it instanceof Attribute || SubqueryExpression$.MODULE$.hasSubquery(it)) return false;
    for (int i = 0; i < it.children().size(); i++) {
      if (!isExtreme((Expression) it.children().apply(i), table, least, greatest)) return false;
    }
    return true;
  }
}
