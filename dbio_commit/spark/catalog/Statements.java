package dbio_commit;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.collection.immutable.$colon$colon;

/** Plans DELETE, UPDATE, MERGE, INSERT and the batches of streams into dbio tables, before Spark's own strategies do. */
public class Statements extends SparkStrategy {
  public Seq apply(LogicalPlan plan) {
    if (plan instanceof WriteToDataSourceV2) {
      Option relation = ((WriteToDataSourceV2) plan).relation();
      if (relation.isEmpty() || sqlTable(((DataSourceV2Relation) relation.get()).table()) == null) return (Seq) Nil$.MODULE$;
      return new $colon$colon(new WriteBatch(plan, planLater(((WriteToDataSourceV2) plan).query())), Nil$.MODULE$);
    }
    SqlTable table = targetOf(plan);
    return (Seq) (table == null ? Nil$.MODULE$ : new $colon$colon(new Statement(plan, table), Nil$.MODULE$));
  }

  /** The table that the statement changes; null for another plan, or another kind of table. */
  static SqlTable targetOf(LogicalPlan plan) {
    boolean isKnown = plan instanceof DeleteFromTable || plan instanceof UpdateTable || plan instanceof MergeIntoTable
        || plan instanceof AppendData || plan instanceof OverwriteByExpression || plan instanceof OverwritePartitionsDynamic
        || addsConstraint(plan);
    LogicalPlan target = isKnown ? (LogicalPlan) plan.productElement(0) : null;
    while (target != null) {
      if (target instanceof DataSourceV2Relation) return sqlTable(((DataSourceV2Relation) target).table());
      if (target instanceof DataSourceV2ScanRelation) target = ((DataSourceV2ScanRelation) target).relation();
      else if (target instanceof InMemoryRelation) target = cached((InMemoryRelation) target);
      else if (target instanceof LogicalRelation) return tableOf(((LogicalRelation) target).relation());
      else target = target.children().size() == 1 ? (LogicalPlan) target.children().head() : null;
    }
    return null;
  }

  /** The relation of the table that an analysed statement changes; null for another kind of relation. */
  static DataSourceV2Relation relationOf(LogicalPlan plan) {
    LogicalPlan target = (LogicalPlan) plan.productElement(0);
    while (target != null && !(target instanceof DataSourceV2Relation)) {
      target = target.children().size() == 1 ? (LogicalPlan) target.children().head() : null;
    }
    return (DataSourceV2Relation) target;
  }

  /**
   * Refuses a target of an analysed statement that is not a table as it is now. The rows of a view, of a query, or of an
   * earlier state are not those of the table below it.
   */
  static void refuseOthers(LogicalPlan plan) {
    SqlTable table = targetOf(plan);
    LogicalPlan target = (LogicalPlan) plan.productElement(0);
    String other = table.isEarlier ? "the target is an earlier state of the table" : null;
    for (; other == null && target.children().size() == 1; target = (LogicalPlan) target.children().head()) {
      if (target instanceof SubqueryAlias || target instanceof Project && isWhole((Project) target)) continue;
      other = target instanceof View ? "'" + ((View) target).desc().identifier().table() + "' is a view"
          : target instanceof Project ? "the target is a query that does not have the columns of the table in their order"
          : "the target is no table, but rows of one (" + target.nodeName() + ")";
    }
    if (other == null) return;
    throw new IllegalStateException("dbio_commit.InvalidInputError: " + other + ", and only a table can be changed; "
        + "nothing was written: name the table " + table.name + " itself, with the condition and the columns in the statement");
  }

  /** Whether a projection has the columns of the rows below it, in their order. Spark pads texts of type CHAR by one. */
  private static boolean isWhole(Project project) {
    Seq below = project.child().output();
    if (project.projectList().size() != below.size()) return false;
    for (int i = 0; i < below.size(); i++) {
      Attribute own = (Attribute) below.apply(i);
      Expression given = (Expression) project.projectList().apply(i);
      if (given instanceof Alias && ((Alias) given).name().equals(own.name()) && isPadded(((Alias) given).child(), own)) continue;
      if (!(given instanceof Attribute) || !((Attribute) given).exprId().equals(own.exprId())) return false;
    }
    return true;
  }

  private static boolean isPadded(Expression given, Attribute column) {
    return given.references().size() == 1 && given.references().contains(column) && given instanceof StaticInvoke
        && ((StaticInvoke) given).functionName().equals("readSidePadding");
  }

  /** Whether it is ALTER TABLE … ADD CONSTRAINT … CHECK, which Spark has since 4.1. */
  static boolean addsConstraint(LogicalPlan plan) { return plan.getClass().getSimpleName().equals("AddCheckConstraint"); }

  /** The plan of the rows that CACHE TABLE has stored. */
  private static LogicalPlan cached(InMemoryRelation relation) {
    Object builder = relation.cacheBuilder();
    try {
      return (LogicalPlan) builder.getClass().getMethod("logicalPlan", new Class[0]).invoke(builder, new Object[0]);
    } catch (ReflectiveOperationException e) { // before Spark 4.0
      SparkPlan plan = relation.cacheBuilder().cachedPlan(); // its first nodes may be only those that generate code
      while (plan.logicalLink().isEmpty() && plan.children().size() == 1) plan = (SparkPlan) plan.children().head();
      return plan.logicalLink().isEmpty() ? null : (LogicalPlan) plan.logicalLink().get();
    }
  }

  private static SqlTable tableOf(Object relation) {
    Object index = relation instanceof HadoopFsRelation ? ((HadoopFsRelation) relation).location() : null;
    return index instanceof SkippingIndex ? ((SkippingIndex) index).table : null;
  }

  static SqlTable sqlTable(Object table) { return table instanceof SqlTable ? (SqlTable) table : null; }
}
