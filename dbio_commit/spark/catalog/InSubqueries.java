package dbio_commit;

import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.runtime.AbstractPartialFunction;

/** Replaces the plans inside expressions: of subqueries, and of the other side of a join by which Spark prunes partitions. */
abstract class InSubqueries extends AbstractPartialFunction {
  abstract LogicalPlan replaced(LogicalPlan plan);

  public boolean isDefinedAt(Object expression) { return expression instanceof SubqueryExpression; }

  public Object applyOrElse(Object expression, scala.Function1 otherwise) {
    if (!isDefinedAt(expression)) return otherwise.apply(expression);
    SubqueryExpression query = (SubqueryExpression) expression;
    LogicalPlan plan = replaced((LogicalPlan) query.plan());
    return plan.fastEquals((TreeNode) query.plan()) ? query : query.withNewPlan(plan);
  }
}
