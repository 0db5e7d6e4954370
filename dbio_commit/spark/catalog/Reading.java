package dbio_commit;

import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.analysis.ResolvedTable;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.DescribeRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.streaming.SparkDataStream;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.SchemaPruning;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.types.Metadata;
import scala.None$;
import scala.Option;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.collection.immutable.$colon$colon;
import scala.runtime.AbstractPartialFunction;

/**
 * The last rule of the optimizer: a scan of a dbio table becomes a relation of files, as `spark.read.parquet` has it. Then
 * Spark's own strategy plans the read: vectorized, with pushed filters, and with the columns and fields that are needed.
 */
public class Reading extends Rule {
  public TreeNode apply(TreeNode plan) {
    if (Statements.targetOf((LogicalPlan) plan) != null) return plan; // `Statement` reads the table itself
    if (plan instanceof DescribeRelation) return described((DescribeRelation) plan);
    return read((LogicalPlan) plan);
  }

  private static LogicalPlan read(LogicalPlan plan) {
    Replace replace = new Replace();
    LogicalPlan whole = (LogicalPlan) plan.transformAllExpressions(new ReadInSubqueries());
    LogicalPlan found = (LogicalPlan) whole.transform(new Counting()).transform(new Extremes()).transform(replace);
    return replace.any ? (LogicalPlan) SchemaPruning.apply(found) : found;
  }

  private static TreeNode described(DescribeRelation plan) {
    Object relation = plan.relation();
    SqlTable table = relation instanceof ResolvedTable ? Statements.sqlTable(((ResolvedTable) relation).table()) : null;
    if (table == null || !plan.isExtended() || table.isDescribed) return plan;
    ResolvedTable own = (ResolvedTable) relation;
    LogicalPlan with = new ResolvedTable(own.catalog(), own.identifier(), table.described(), own.outputAttributes());
    return plan.withNewChildren((Seq) new $colon$colon(with, Nil$.MODULE$));
  }

  /** The plan that reads the rows of the table, with these attributes. */
  static LogicalPlan planOf(SqlTable table, Seq output) {
    Object rows = table.rows();
    if (rows instanceof HadoopFsRelation) return relation(rows, output);
    String[] columns = new String[output.size()];
    for (int i = 0; i < columns.length; i++) columns[i] = SqlTable.quoted(((Attribute) output.apply(i)).name());
    return named((LogicalPlan) ((Dataset) rows).selectExpr(columns).queryExecution().optimizedPlan(), output);
  }

  static LogicalPlan relation(Object files, Seq output) {
    Object[] given = {files, marked(output), None$.MODULE$, Boolean.FALSE, None$.MODULE$}; // the last one since Spark 4.0
    return relation(given);
  }

  /** A LogicalRelation of these parts, of which the last one is there since Spark 4.0. */
  static LogicalPlan relation(Object[] given) {
    Constructor constructor = LogicalRelation.class.getConstructors()[0];
    try {
      return (LogicalPlan) constructor.newInstance(Arrays.copyOf(given, constructor.getParameterTypes().length));
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** The plan of a batch of a stream, whose rows are not known yet. */
  static LogicalPlan unread(Batch batch) {
    Seq output = DataTypeUtils.toAttributes(batch.schema());
    return relation(new Object[] {batch, output, None$.MODULE$, Boolean.TRUE, None$.MODULE$});
  }

  /** The plan that reads a batch, in the place of the one that `unread` has made. */
  private static LogicalPlan planOf(LogicalRelation unread) {
    LogicalPlan rows = ((Batch) unread.relation()).rows();
    LogicalPlan found = (LogicalPlan) rows.transform(new Stream(unread));
    return inOrder(found.isStreaming() ? found : rowByRow(unread, rows), unread.output());
  }

  /** The plan of a batch whose rows no relation of files has, as Python workers read them. */
  private static LogicalPlan rowByRow(LogicalRelation unread, LogicalPlan rows) {
    SparkSession session = ((Batch) unread.relation()).session;
    Dataset found = (Dataset) Dataset$.MODULE$.ofRows(session, rows);
    found = (Dataset) session.internalCreateDataFrame(found.queryExecution().toRdd(), found.schema(), true);
    LogicalPlan plan = found.queryExecution().analyzed();
    Option stream = (Option) (unread.productArity() < 5 ? None$.MODULE$ : unread.productElement(4));
    if (stream.isEmpty()) return plan;
    try {
      return (LogicalPlan) plan.getClass().getMethod("withStream", new Class[] {SparkDataStream.class})
          .invoke(plan, new Object[] {stream.get()}); // since Spark 4.0
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /** The attributes, with `_metadata` marked in the way by which Spark's strategy for files knows it. */
  private static Seq marked(Seq output) {
    Object[] found = new Object[output.size()];
    for (int i = 0; i < found.length; i++) {
      Attribute own = (Attribute) output.apply(i);
      boolean isMetadata = own.name().equals(SqlTable.FileMetadata.NAME) && own.metadata().contains("__metadata_col");
      found[i] = isMetadata ? own.withMetadata(Metadata.fromJson(SqlTable.FileMetadata.MARK)) : own;
    }
    return (Seq) ArraySeq$.MODULE$.unsafeWrapArray(found);
  }

  /** The same rows, whose columns have the ids of the attributes with their names; other columns keep their ids. */
  static LogicalPlan named(LogicalPlan plan, Seq attributes) {
    List columns = new ArrayList();
    for (int i = 0; i < plan.output().size(); i++) {
      Attribute own = (Attribute) plan.output().apply(i);
      Attribute wanted = own;
      for (int j = 0; j < attributes.size(); j++) {
        if (((Attribute) attributes.apply(j)).name().equals(own.name())) wanted = (Attribute) attributes.apply(j);
      }
      columns.add(as(own, wanted));
    }
    return new Project((Seq) ArraySeq$.MODULE$.unsafeWrapArray(columns.toArray()), plan);
  }

  /** The same rows, whose first columns have the ids of these attributes, one by one. */
  static LogicalPlan inOrder(LogicalPlan plan, Seq attributes) {
    List columns = new ArrayList();
    for (int i = 0; i < plan.output().size(); i++) {
      Attribute own = (Attribute) plan.output().apply(i);
      columns.add(i < attributes.size() ? as(own, (Attribute) attributes.apply(i)) : own);
    }
    return new Project((Seq) ArraySeq$.MODULE$.unsafeWrapArray(columns.toArray()), plan);
  }

  private static Object as(Attribute own, Attribute wanted) {
    if (wanted.exprId().equals(own.exprId())) return own;
    return new Alias(own, own.name(), wanted.exprId(), (Seq) Nil$.MODULE$, (Option) None$.MODULE$, (Seq) Nil$.MODULE$);
  }

  private static class Replace extends AbstractPartialFunction {
    boolean any;

    public boolean isDefinedAt(Object plan) {
      return isBatch(plan)
          || plan instanceof DataSourceV2ScanRelation && ((DataSourceV2ScanRelation) plan).scan() instanceof SqlTable.Rows;
    }

    private static boolean isBatch(Object plan) {
      return plan instanceof LogicalRelation && ((LogicalRelation) plan).relation() instanceof Batch;
    }

    public Object applyOrElse(Object plan, scala.Function1 otherwise) {
      if (!isDefinedAt(plan)) return otherwise.apply(plan);
      any = true;
      if (isBatch(plan)) return planOf((LogicalRelation) plan);
      DataSourceV2ScanRelation scan = (DataSourceV2ScanRelation) plan;
      return planOf(((SqlTable.Rows) scan.scan()).table, scan.output());
    }
  }

  /** Makes relations of files parts of a stream: operators that keep state look at that, and so do counts of rows. */
  private static class Stream extends AbstractPartialFunction {
    private final LogicalRelation like;

    Stream(LogicalRelation like) { this.like = like; }

    public boolean isDefinedAt(Object plan) { return plan instanceof LogicalRelation; }

    public Object applyOrElse(Object plan, scala.Function1 otherwise) {
      if (!isDefinedAt(plan)) return otherwise.apply(plan);
      Object[] given = new Object[like.productArity()];
      for (int i = 0; i < given.length; i++) given[i] = i < 3 ? ((LogicalRelation) plan).productElement(i) : like.productElement(i);
      return relation(given);
    }
  }

  private static class ReadInSubqueries extends InSubqueries {
    LogicalPlan replaced(LogicalPlan plan) { return read(plan); }
  }
}
