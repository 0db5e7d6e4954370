package dbio_commit;

import java.util.LinkedHashSet;
import java.util.Set;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.Option;
import scala.collection.Seq;
import scala.runtime.AbstractPartialFunction;

/**
 * Finds the states of dbio tables that plans read, in all of their views and subqueries. The plan of `dbio.read` has a tag
 * with its state. Tables of the catalog have a method for it, which returns null for VERSION AS OF and the like.
 */
public class Reads extends AbstractPartialFunction {
  private static final TreeNodeTag STATE = new TreeNodeTag("dbio_state");

  private final Set found = new LinkedHashSet();
  private final String prefix; // of the states of tables of the catalog

  private Reads(String prefix) { this.prefix = prefix; }

  /** Tags the rows with the state that they are read from. DataFrames made of these rows keep the tag. */
  public static void mark(Dataset rows, String state) {
    ((LogicalPlan) rows.queryExecution().analyzed()).setTagValue(STATE, state);
  }

  /**
   * The states that the rows are read from, with zero bytes between them. That of a table of the catalog begins with ~,
   * as the table may have a later state when Spark reads the rows, since 4.1.
   */
  public static String of(Dataset rows) {
    Reads reads = new Reads("~");
    ((LogicalPlan) rows.queryExecution().analyzed()).collectWithSubqueries(reads);
    return String.join("\0", reads.found);
  }

  /** The states that an analysed statement reads; `target` is the child that it changes, if it has one. */
  public static String ofStatement(LogicalPlan statement, LogicalPlan target) {
    Reads reads = new Reads("");
    if (target == null) statement.collectWithSubqueries(reads);
    else {
      reads.in(statement.children(), target);
      reads.in(statement.subqueries(), target);
    }
    return String.join("\0", reads.found);
  }

  private void in(Seq plans, LogicalPlan target) {
    for (int i = 0; i < plans.size(); i++) {
      if (plans.apply(i) != target) ((LogicalPlan) plans.apply(i)).collectWithSubqueries(this);
    }
  }

  public boolean isDefinedAt(Object plan) { return true; }

  public Object applyOrElse(Object plan, scala.Function1 otherwise) {
    Option tag = ((LogicalPlan) plan).getTagValue(STATE);
    if (tag.isDefined()) found.add(tag.get());
    if (plan instanceof DataSourceV2ScanRelation) plan = ((DataSourceV2ScanRelation) plan).relation();
    if (plan instanceof DataSourceV2Relation) add(((DataSourceV2Relation) plan).table());
    return plan;
  }

  private void add(Object table) {
    if (!table.getClass().getName().startsWith("dbio_commit.")) return;
    Object state = ask(table, "state"), changes = ask(table, "changes");
    if (state != null) found.add(prefix + state);
    if (changes != null) {
      ((LogicalPlan) ((Dataset) changes).queryExecution().analyzed()).collectWithSubqueries(this);
    }
  }

  /** Calls a method by its name, since the class is in a room above this one. */
  private static Object ask(Object table, String method) {
    try {
      return table.getClass().getMethod(method, new Class[0]).invoke(table, new Object[0]);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }
}
