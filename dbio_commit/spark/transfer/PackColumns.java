package dbio_commit;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.BindReferences$;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.package$AttributeSeq;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.ColumnarToRowExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.GenerateExec;
import org.apache.spark.sql.execution.InputAdapter;
import org.apache.spark.sql.execution.PlanLater;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.UnaryExecNode;
import org.apache.spark.sql.execution.WholeStageCodegenExec;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.collection.immutable.$colon$colon;

/**
 * The operator that runs `pack_rows`. If its rows come from a columnar scan, it packs the scan's columns directly and
 * computes only the other columns. At most a filter and a projection may be in between. Otherwise it does the same as
 * Spark's own operator for generators. Spark takes longer to make rows of columns than to read the columns.
 */
public class PackColumns extends SparkPlan implements UnaryExecNode {
  private final PackRows packing;
  private final Seq output;
  private final SparkPlan child;

  public PackColumns(PackRows packing, Seq output, SparkPlan child) {
    this.packing = packing;
    this.output = output;
    this.child = child;
  }

  // --- planning ---

  /** Makes the session plan this operator from now on. */
  public static synchronized void planIn(ExperimentalMethods session) {
    Seq known = session.extraStrategies();
    for (int i = 0; i < known.size(); i++) if (known.apply(i) instanceof Strategy) return;
    session.extraStrategies_$eq(new $colon$colon(new Strategy(), known.toList()));
  }

  static class Strategy extends SparkStrategy {
    public Seq apply(LogicalPlan plan) {
      if (!(plan instanceof Generate)) return Nil$.MODULE$;
      Generate generate = (Generate) plan;
      if (!(generate.generator() instanceof PackRows) || generate.requiredChildOutput().nonEmpty()) return Nil$.MODULE$;
      SparkPlan child = new PlanLater(generate.child());
      PackRows packing = (PackRows) generate.generator();
      return new $colon$colon(new PackColumns(packing, generate.qualifiedGeneratorOutput(), child), Nil$.MODULE$);
    }
  }

  // --- an operator of Spark ---

  public TreeNode child() {
    return child;
  }

  public Seq children() {
    return new $colon$colon(child, Nil$.MODULE$);
  }

  public TreeNode withNewChildInternal(TreeNode changed) {
    return new PackColumns(packing, output, (SparkPlan) changed);
  }

  public TreeNode withNewChildrenInternal(IndexedSeq changed) {
    return new PackColumns(packing, output, (SparkPlan) changed.head());
  }

  public Seq output() {
    return output;
  }

  /** In Scala 2.12, the trait calls the method of the class above it by this name. */
  public String org$apache$spark$sql$execution$UnaryExecNode$$super$formattedNodeName() {
    return super.formattedNodeName();
  }

  public AttributeSet producedAttributes() {
    return AttributeSet$.MODULE$.apply(output);
  }

  public int productArity() {
    return 3;
  }

  public Object productElement(int position) {
    switch (position) {
      case 0: return packing;
      case 1: return output;
      default: return child;
    }
  }

  public boolean canEqual(Object other) {
    return other instanceof PackColumns;
  }

  public RDD doExecute() {
    Task task = new Task(packing);
    SparkPlan scan = scanOf(task);
    if (scan == null) return new GenerateExec(packing, Nil$.MODULE$, false, output, child).execute();
    return scan.executeColumnar().toJavaRDD().mapPartitions(task).rdd();
  }

  /** Whether it packs the columns of a scan directly. For tests. */
  public boolean takesColumns() {
    return scanOf(new Task(packing)) != null;
  }

  // --- the scan ---

  /** The columnar scan that the task reads, or null if its rows come from something else. */
  private SparkPlan scanOf(Task task) {
    SparkPlan plan = within(child);
    Seq projected = null;
    if (plan instanceof ProjectExec) {
      projected = ((ProjectExec) plan).projectList();
      plan = within(((ProjectExec) plan).child());
    }
    Expression condition = null;
    if (plan instanceof FilterExec) {
      condition = ((FilterExec) plan).condition();
      task.rowsKept = plan.longMetric("numOutputRows");
      plan = within(((FilterExec) plan).child());
    }
    if (!(plan instanceof ColumnarToRowExec)) return null;
    task.rowsRead = plan.longMetric("numOutputRows");
    task.batchesRead = plan.longMetric("numInputBatches");
    SparkPlan scan = within(((ColumnarToRowExec) plan).child());
    if (!scan.supportsColumnar()) return null;
    package$AttributeSeq columns = new package$AttributeSeq(scan.output());
    return task.canFilter(condition, columns) && task.canMake(projected, columns, scan.output()) ? scan : null;
  }

  private static SparkPlan within(TreeNode plan) {
    if (plan instanceof WholeStageCodegenExec) return ((WholeStageCodegenExec) plan).child();
    return plan instanceof InputAdapter ? ((InputAdapter) plan).child() : (SparkPlan) plan;
  }

  /** What an executor does with the batches of the scan. */
  static class Task implements FlatMapFunction, Serializable {
    final PackRows packing;
    private final int[] ordinals; // the scan's column, or -1, -2, … for the first, second, … computed one
    private Expression condition; // or null
    private Seq computed;
    private Seq keys;
    SQLMetric rowsRead;
    SQLMetric batchesRead;
    SQLMetric rowsKept; // null without a filter

    Task(PackRows packing) {
      this.packing = packing;
      ordinals = new int[packing.children().size()];
    }

    boolean canFilter(Expression by, package$AttributeSeq columns) {
      if (by == null) return true;
      condition = bound(by, columns);
      return condition != null;
    }

    /** Whether the packed columns are columns of the scan or computable from them. `projected` is null for all columns. */
    boolean canMake(Seq projected, package$AttributeSeq columns, Seq all) {
      ArrayList computed = new ArrayList(), keys = new ArrayList();
      for (int k = 0; k < ordinals.length; k++) {
        Expression made = named((Expression) packing.children().apply(k), projected == null ? all : projected);
        made = made == null ? null : bound(made, columns);
        if (made == null) return false;
        if (packing.isKey(k)) keys.add(made);
        if (made instanceof BoundReference) {
          ordinals[k] = ((BoundReference) made).ordinal();
        } else {
          computed.add(made);
          ordinals[k] = -computed.size();
        }
      }
      this.computed = ArraySeq$.MODULE$.unsafeWrapArray(computed.toArray());
      this.keys = ArraySeq$.MODULE$.unsafeWrapArray(keys.toArray());
      return true;
    }

    private static Expression named(Expression column, Seq projected) {
      if (!(column instanceof Attribute)) return null;
      for (int p = 0; p < projected.size(); p++) {
        NamedExpression made = (NamedExpression) projected.apply(p);
        if (!made.exprId().equals(((Attribute) column).exprId())) continue;
        return made instanceof Alias ? (Expression) ((Alias) made).child() : (Expression) made;
      }
      return null;
    }

    /** The expression on columns of the scan, or null if it may only be evaluated by Spark's own operators. */
    private static Expression bound(Expression made, package$AttributeSeq columns) {
      if (!made.deterministic() || asksQueries(made)) return null;
      return (Expression) BindReferences$.MODULE$.bindReference(made, columns, false);
    }

    private static boolean asksQueries(TreeNode expression) {
      if (expression instanceof PlanExpression) return true;
      Seq parts = expression.children();
      for (int i = 0; i < parts.size(); i++) if (asksQueries((TreeNode) parts.apply(i))) return true;
      return false;
    }

    public Iterator call(Object batches) {
      return new Packed(this, (Iterator) batches);
    }

    DataType[] computedTypes() {
      DataType[] found = new DataType[computed.size()];
      for (int c = 0; c < found.length; c++) found[c] = ((Expression) computed.apply(c)).dataType();
      return found;
    }
  }

  // --- in a task ---

  /** The rows of the scan, packed. */
  static class Packed implements Iterator {
    private final Task task;
    private final Iterator batches;
    private final Packer packer;
    private final BasePredicate condition; // or null
    private final UnsafeProjection compute; // or null
    private final StagedRows computed;
    private final Chosen rows;
    private int next; // row of the batch to look at
    private boolean finished;

    Packed(Task task, Iterator batches) {
      this.task = task;
      this.batches = batches;
      packer = task.packing.packer();
      condition = task.condition == null ? null : Predicate$.MODULE$.create(task.condition);
      compute = task.computed.isEmpty() ? null : UnsafeProjection$.MODULE$.create(task.computed);
      computed = new StagedRows(task.computedTypes());
      rows = new Chosen(task.ordinals.length, UnsafeProjection$.MODULE$.create(task.keys));
    }

    public boolean hasNext() {
      while (!packer.hasNext()) {
        if (packer.isAdding()) {
          packer.goOn();
        } else if (rows.batch != null) {
          if (next < rows.batch.numRows()) add(); else end();
        } else if (batches.hasNext()) {
          begin((ColumnarBatch) batches.next());
        } else if (!finished) {
          packer.finish();
          finished = true;
        } else {
          return false;
        }
      }
      return true;
    }

    /** Not an UnsafeRow: the operator that passes rows to Python accepts any kind of row. */
    public Object next() {
      return packer.next();
    }

    public void remove() {
      throw new UnsupportedOperationException();
    }

    private void begin(ColumnarBatch batch) {
      rows.batch = batch;
      next = 0;
      for (int k = 0; k < task.ordinals.length; k++) {
        int ordinal = task.ordinals[k];
        rows.columns[k] = ordinal >= 0 ? batch.column(ordinal) : computed.column(-1 - ordinal);
        rows.hasMore[k] = ordinal >= 0;
      }
    }

    /** Adds some rows of the batch. */
    private void add() {
      rows.count = 0;
      computed.clear();
      for (; next < rows.batch.numRows() && rows.count < rows.chosen.length; next++) {
        InternalRow row = rows.batch.getRow(next);
        if (condition != null && !condition.eval(row)) continue;
        if (compute != null) {
          UnsafeRow made = compute.apply(row);
          if (!computed.hasRoomFor(made)) break; // it is computed again next time
          computed.add(made);
        }
        rows.chosen[rows.count++] = next;
      }
      if (task.rowsKept != null) task.rowsKept.add((long) rows.count);
      packer.add(rows);
    }

    /** Releases the batch: the scan reuses its memory for the next one. */
    private void end() {
      task.batchesRead.add(1L);
      task.rowsRead.add((long) rows.batch.numRows());
      rows.batch.closeIfFreeable();
      rows.batch = null;
      Arrays.fill(rows.columns, null);
    }
  }

  /** Some rows of a batch. */
  static class Chosen extends InputRows {
    ColumnarBatch batch;
    private final UnsafeProjection keys;

    Chosen(int fields, UnsafeProjection keys) {
      super(fields);
      chosen = new int[StagedRows.MOST_ROWS];
      this.keys = keys;
    }

    public UnsafeRow key(int row) {
      return keys.apply(batch.getRow(chosen[row]));
    }
  }
}
