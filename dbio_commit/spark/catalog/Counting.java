package dbio_commit;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression$;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import scala.Option;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractPartialFunction;

/**
 * Answers an aggregation from what the log records, if it needs no more than counts and values of partition columns. The
 * scan becomes a row in memory for each partition, with its number of rows. Spark then filters and groups these rows, and
 * a count becomes a sum of numbers. All expressions that remain use partition columns only.
 */
class Counting extends AbstractPartialFunction {
  public boolean isDefinedAt(Object plan) { return plan instanceof Aggregate && new Counted((Aggregate) plan).found() != null; }

  public Object applyOrElse(Object plan, scala.Function1 otherwise) {
    LogicalPlan found = plan instanceof Aggregate ? new Counted((Aggregate) plan).found() : null;
    return found == null ? otherwise.apply(plan) : found;
  }

  private static class Counted {
    private final Aggregate aggregate;
    private final Set known = new HashSet(); // ids of attributes that are the same in all rows of a partition
    private final List columns = new ArrayList(); // attributes whose values are counted
    private final List counts = new ArrayList(); // attributes of their numbers
    private final Attribute rows = number("rows");
    private DataSourceV2ScanRelation scan;

    Counted(Aggregate aggregate) { this.aggregate = aggregate; }

    /** The aggregation of counts; null if it needs more than counts, or if they are not known. */
    LogicalPlan found() {
      if (!isBelow(aggregate.child()) || !areAllKnown(aggregate.groupingExpressions())) return null;
      for (int i = 0; i < aggregate.aggregateExpressions().size(); i++) {
        if (!isCountable((Expression) aggregate.aggregateExpressions().apply(i))) return null;
      }
      SqlTable table = ((SqlTable.Rows) scan.scan()).table;
      String[] names = new String[columns.size()];
      for (int i = 0; i < names.length; i++) names[i] = ((Attribute) columns.get(i)).name();
      FileIndex index = Questions.counts(table.token, names);
      if (index == null) return null;
      LogicalPlan below = counted(aggregate.child(), index);
      LogicalPlan above = (LogicalPlan) aggregate.withNewChildren(seq(new Object[] {below}));
      return (LogicalPlan) above.transformExpressions(new Sums(this));
    }

    // --- whether counts are enough ---

    private boolean isBelow(LogicalPlan plan) {
      if (plan instanceof DataSourceV2ScanRelation) {
        scan = (DataSourceV2ScanRelation) plan;
        if (!(scan.scan() instanceof SqlTable.Rows)) return false;
        SqlTable table = ((SqlTable.Rows) scan.scan()).table;
        if (!table.hasCounts()) return false;
        for (int i = 0; i < scan.output().size(); i++) {
          Attribute column = (Attribute) scan.output().apply(i);
          if (table.indexOfPartition(column.name()) >= 0) known.add(column.exprId());
        }
        return true;
      }
      if (plan instanceof Filter) {
        return isBelow(((Filter) plan).child()) && isKnown(((Filter) plan).condition());
      }
      if (!(plan instanceof Project) || !isBelow(((Project) plan).child())) return false;
      Seq list = ((Project) plan).projectList();
      for (int i = 0; i < list.size(); i++) {
        Expression one = (Expression) list.apply(i);
        if (one instanceof Attribute) continue;
        if (!isKnown(one)) return false;
        known.add(((org.apache.spark.sql.catalyst.expressions.NamedExpression) one).exprId());
      }
      return true;
    }

    private boolean areAllKnown(Seq expressions) {
      for (int i = 0; i < expressions.size(); i++) if (!isKnown((Expression) expressions.apply(i))) return false;
      return true;
    }

    /** Whether the value is the same in all rows of a partition. */
    private boolean isKnown(Expression it) {
      if (!it.deterministic() || SubqueryExpression$.MODULE$.hasSubquery(it)) return false;
      scala.collection.Iterator used = it.references().iterator();
      while (used.hasNext()) if (!known.contains(((Attribute) used.next()).exprId())) return false;
      return true;
    }

    private boolean isCountable(Expression it) {
      if (it instanceof AggregateExpression) return isCount((AggregateExpression) it);
      if (it instanceof Attribute || !it.deterministic() || SubqueryExpression$.MODULE$.hasSubquery(it)) return isKnown(it);
      for (int i = 0; i < it.children().size(); i++) if (!isCountable((Expression) it.children().apply(i))) return false;
      return true;
    }

    private boolean isCount(AggregateExpression it) {
      if (it.filter().isDefined() && !isKnown((Expression) it.filter().get())) return false;
      AggregateFunction function = it.aggregateFunction();
      boolean isCount = function instanceof Count;
      if (!isCount && !(function instanceof Min) && !(function instanceof Max)) return false;
      if (!isCount || it.isDistinct()) return areAllKnown(function.children());
      return isOfRows(function) || function.children().size() == 1 && isOfColumn((Expression) function.children().head());
    }

    /** Whether it counts all rows. */
    static boolean isOfRows(AggregateFunction count) {
      for (int i = 0; i < count.children().size(); i++) {
        Object one = count.children().apply(i);
        if (!(one instanceof Literal) || ((Literal) one).value() == null) return false;
      }
      return true;
    }

    private boolean isOfColumn(Expression counted) {
      if (isKnown(counted)) return true;
      if (!(counted instanceof Attribute)) return false;
      if (placeOf(counted) < 0) {
        columns.add(counted);
        counts.add(number("values"));
      }
      return true;
    }

    private int placeOf(Expression counted) {
      for (int i = 0; i < columns.size(); i++) {
        if (((Attribute) columns.get(i)).exprId().equals(((Attribute) counted).exprId())) return i;
      }
      return -1;
    }

    // --- the plan of counts ---

    private LogicalPlan counted(LogicalPlan plan, FileIndex index) {
      if (plan instanceof DataSourceV2ScanRelation) return Frames.local(passed(scan.output()), partitions(index));
      LogicalPlan below = counted((LogicalPlan) plan.children().head(), index);
      if (plan instanceof Project) return new Project(passed(((Project) plan).projectList()), below);
      return (LogicalPlan) plan.withNewChildren(seq(new Object[] {below}));
    }

    /** Of the columns, those that are the same in all rows of a partition; and the numbers. */
    private Seq passed(Seq list) {
      List found = new ArrayList();
      for (int i = 0; i < list.size(); i++) {
        Object one = list.apply(i);
        if (!(one instanceof Attribute) || known.contains(((Attribute) one).exprId())) found.add(one);
      }
      found.add(rows);
      found.addAll(counts);
      return seq(found.toArray());
    }

    /** A row for each partition. */
    private InternalRow[] partitions(FileIndex index) {
      SqlTable table = ((SqlTable.Rows) scan.scan()).table;
      Seq directories = index.listFiles((Seq) Nil$.MODULE$, (Seq) Nil$.MODULE$);
      InternalRow[] found = new InternalRow[directories.size()];
      for (int i = 0; i < found.length; i++) {
        PartitionDirectory directory = (PartitionDirectory) directories.apply(i);
        List values = new ArrayList();
        for (int j = 0; j < scan.output().size(); j++) {
          Attribute column = (Attribute) scan.output().apply(j);
          int place = table.indexOfPartition(column.name());
          if (place >= 0) values.add(directory.values().get(place, column.dataType()));
        }
        Seq numbers = directory.files();
        for (int j = 0; j < numbers.size(); j++) {
          values.add(Long.valueOf(((FileStatusWithMetadata) numbers.apply(j)).getLen() - 1)); // see `tables.py`
        }
        found[i] = new GenericInternalRow(values.toArray());
      }
      return found;
    }

    /** The number of rows that a count counts in a partition. */
    Expression counted(Count count) {
      if (isOfRows(count)) return rows;
      Expression one = (Expression) count.children().head();
      if (isKnown(one)) return new If(new IsNotNull(one), rows, zero());
      return (Expression) counts.get(placeOf(one));
    }

    private static Attribute number(String name) {
      return new AttributeReference(name, DataTypes.LongType, false, Metadata.empty(), NamedExpression$.MODULE$.newExprId(),
          (Seq) Nil$.MODULE$);
    }
  }

  private static Expression zero() { return Literal$.MODULE$.create(Long.valueOf(0), DataTypes.LongType); }

  private static Seq seq(Object[] all) {
    return (Seq) ArraySeq$.MODULE$.unsafeWrapArray(all);
  }

  /** Replaces counts by sums of numbers of rows. */
  private static class Sums extends AbstractPartialFunction {
    private final Counted counted;

    Sums(Counted counted) { this.counted = counted; }

    public boolean isDefinedAt(Object it) {
      return it instanceof AggregateExpression && !((AggregateExpression) it).isDistinct()
          && ((AggregateExpression) it).aggregateFunction() instanceof Count;
    }

    public Object applyOrElse(Object it, scala.Function1 otherwise) {
      if (!isDefinedAt(it)) return otherwise.apply(it);
      AggregateExpression count = (AggregateExpression) it;
      Expression sum = new Sum(counted.counted((Count) count.aggregateFunction())).toAggregateExpression(false, count.filter());
      return new Coalesce(seq(new Object[] {sum, zero()}));
    }
  }
}
