package dbio_commit;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable;
import org.apache.spark.sql.catalyst.plans.logical.InsertAction;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeAction;
import org.apache.spark.sql.catalyst.plans.logical.MergeIntoTable;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.UpdateAction;
import org.apache.spark.sql.catalyst.plans.logical.UpdateTable;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.LeafV2CommandExec;
import org.apache.spark.sql.execution.datasources.v2.V2CommandExec;
import scala.Option;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractPartialFunction;

/**
 * Runs a DELETE, UPDATE, MERGE, INSERT or ADD CONSTRAINT: Python gets the expressions of the analysed statement, and writes, see
 * `statements.py`. Tables that the statement reads are read as they were when Spark analysed it.
 */
public class Statement extends V2CommandExec implements LeafV2CommandExec {
  private final LogicalPlan optimized;
  private final SqlTable table;

  public Statement(LogicalPlan optimized, SqlTable table) { // Spark copies it by the elements of the product
    this.optimized = optimized;
    this.table = table;
  }

  public Seq output() { return (Seq) Nil$.MODULE$; }
  public Seq children() { return (Seq) Nil$.MODULE$; }
  public TreeNode withNewChildrenInternal(IndexedSeq changed) { return this; }
  public int productArity() { return 2; }
  public Object productElement(int i) { return i == 0 ? (Object) optimized : table; }
  public boolean canEqual(Object other) { return other instanceof Statement; }
  public String nodeName() { return "Dbio" + optimized.nodeName(); }

  public Seq run() {
    SparkSession session = (SparkSession) session();
    LogicalPlan plan = analyzed();
    if (!Statements.addsConstraint(plan)) Statements.refuseOthers(plan); // Spark takes a view there for no table
    SqlTable table = States.ofTarget(session, plan);
    plan = (LogicalPlan) plan.transformUpWithSubqueries(new States(session, table));
    LogicalPlan target = (LogicalPlan) plan.productElement(0);
    Seq columns = target.output();
    Questions.Analysed given = new Questions.Analysed(plan, target, columns);
    if (plan instanceof DeleteFromTable) {
      Piece where = piece((Expression) plan.productElement(1), new ConditionText(null, null));
      Questions.delete(session, table.token, given, where);
    } else if (plan instanceof UpdateTable) {
      ConditionText texts = new ConditionText(null, null);
      Questions.NewValue[] values = assigned((Seq) plan.productElement(1), texts);
      Option condition = (Option) plan.productElement(2);
      Piece where = piece(condition.isDefined() ? (Expression) condition.get() : Literal$.MODULE$.TrueLiteral(), texts);
      Questions.update(session, table.token, given, where, values);
    } else if (plan instanceof MergeIntoTable) {
      LogicalPlan source = PIN.in((LogicalPlan) plan.productElement(1));
      if (plan.productArity() > 6 && Boolean.TRUE.equals(plan.productElement(6))) refuseEvolution(columns, source.output());
      ConditionText texts = new ConditionText(columns, source.output());
      Piece on = piece((Expression) plan.productElement(2), texts);
      List clauses = new ArrayList();
      String[] rows = {"matched", "not_matched", "not_matched_by_source"};
      for (int i = 0; i < 3; i++) addClauses(clauses, rows[i], (Seq) plan.productElement(3 + i), texts);
      Dataset frame = (Dataset) Dataset$.MODULE$.ofRows(session, source);
      Questions.merge(session, table.token, given, source.output(), frame, on,
          (Questions.MergeClause[]) clauses.toArray(new Questions.MergeClause[0]));
    // since org.apache.spark.sql.connector.catalog.constraints.Check:
    } else if (Statements.addsConstraint(plan)) {
      Questions.constrain(session, table.token, Definition.ofCheck(plan.productElement(1)).settings);
    // end
    } else {
      boolean replaces = plan instanceof OverwriteByExpression;
      int i = replaces ? 2 : 1; // where the rows are; their options come next
      String mode = replaces ? "overwrite" : plan instanceof AppendData ? "append" : "overwrite_partitions";
      Expression replaced = replaces ? (Expression) plan.productElement(1) : null;
      boolean some = replaced != null && !replaced.equals(Literal$.MODULE$.TrueLiteral());
      Piece where = some ? piece(replaced, new ConditionText(null, null)) : null;
      Dataset rows = (Dataset) Dataset$.MODULE$.ofRows(session, PIN.in((LogicalPlan) plan.productElement(i)));
      Map options = options((scala.collection.Map) plan.productElement(i + 1));
      Questions.insert(session, table.token, given, mode, where, rows, options);
    }
    if (table instanceof NewTable) ((NewTable) table).written();
    return (Seq) Nil$.MODULE$;
  }

  /** Refuses MERGE WITH SCHEMA EVOLUTION if the source has columns that the table lacks: they would be dropped. */
  private static void refuseEvolution(Seq columns, Seq given) {
    Set known = new HashSet();
    for (int i = 0; i < columns.size(); i++) known.add(nameOf(columns.apply(i)));
    for (int i = 0; i < given.size(); i++) {
      if (known.contains(nameOf(given.apply(i)))) continue;
      throw new IllegalStateException("dbio_commit.InvalidInputError: WITH SCHEMA EVOLUTION is not supported, and the table"
          + " has no column '" + ((Attribute) given.apply(i)).name() + "' of the source; nothing was written: add it by"
          + " ALTER TABLE ... ADD COLUMN first, and merge without these words");
    }
  }

  private static String nameOf(Object column) { return ((Attribute) column).name().toLowerCase(Locale.ROOT); }

  /** The statement as Spark analysed it. After that, the optimizer changes subqueries in ways that only it understands. */
  private LogicalPlan analyzed() {
    String id = sparkContext().getLocalProperty("spark.sql.execution.id");
    QueryExecution query = id == null ? null : SQLExecution.getQueryExecution(Long.parseLong(id));
    LogicalPlan plan = query == null ? null : query.analyzed();
    return plan != null && plan.getClass() == optimized.getClass() ? plan : optimized;
  }

  static Map options(scala.collection.Map options) {
    Map found = new LinkedHashMap();
    scala.collection.Iterator all = options.iterator();
    while (all.hasNext()) {
      scala.Tuple2 option = (scala.Tuple2) all.next();
      found.put(option._1(), String.valueOf(option._2()));
    }
    return found;
  }

  private static Piece piece(Expression expression, ConditionText texts) {
    return new Piece(PIN.in(expression), texts);
  }

  private static Questions.NewValue[] assigned(Seq assignments, ConditionText texts) {
    Questions.NewValue[] found = new Questions.NewValue[assignments.size()];
    for (int i = 0; i < found.length; i++) {
      Assignment one = (Assignment) assignments.apply(i);
      String key = Piece.keyOf(one);
      Piece column = key.indexOf('\0') < 0 ? null : new Piece(Piece.columnOf(one), texts);
      found[i] = new Questions.NewValue(key, piece(Piece.valueOf(one), texts), column);
    }
    return found;
  }

  private static void addClauses(List found, String rows, Seq actions, ConditionText texts) {
    for (int i = 0; i < actions.size(); i++) {
      MergeAction action = (MergeAction) actions.apply(i);
      Option condition = action.condition();
      Piece where = condition.isDefined() ? piece((Expression) condition.get(), texts) : null;
      Seq values = action instanceof UpdateAction ? ((UpdateAction) action).assignments()
          : action instanceof InsertAction ? ((InsertAction) action).assignments() : null;
      String what = action instanceof UpdateAction ? "update" : action instanceof InsertAction ? "insert" : "delete";
      found.add(new Questions.MergeClause(rows, what, where, values == null ? null : assigned(values, texts)));
    }
  }

  private static final Pin PIN = new Pin();

  /** Replaces dbio tables by the files of their snapshots, in subqueries, too. */
  private static class Pin extends AbstractPartialFunction {
    LogicalPlan in(LogicalPlan plan) { return (LogicalPlan) plan.transformUpWithSubqueries(this); }

    Expression in(Expression expression) { return (Expression) expression.transform(new PinInSubqueries()); }

    public boolean isDefinedAt(Object plan) { return States.tableOf(plan) != null; }

    public Object applyOrElse(Object plan, scala.Function1 otherwise) {
      SqlTable read = States.tableOf(plan);
      if (read == null) return otherwise.apply(plan);
      read.checkRead(((DataSourceV2Relation) plan).options());
      return Reading.planOf(read, ((DataSourceV2Relation) plan).output());
    }
  }

  private static class PinInSubqueries extends InSubqueries {
    LogicalPlan replaced(LogicalPlan plan) { return PIN.in(plan); }
  }
}
