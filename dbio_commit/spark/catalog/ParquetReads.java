package dbio_commit;

import java.io.IOException;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.CreateTempViewUsing;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.FileTable;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/**
 * Reads of Parquet by code that knows nothing of dbio: two rules of Spark's analyzer. The first one replaces a read of a
 * dbio table, by its path, before Spark lists the directory. The second one looks at what Spark has listed, and leaves
 * only committed files in it. Both leave what was analysed before as it is: a frame is pinned when it is made.
 */
public class ParquetReads extends Rule {
  public static final String SWITCH = "spark.dbio.reads"; // as `reads.py` has it
  private final SparkSession session;
  private final boolean isFirst;

  public ParquetReads(SparkSession session, boolean isFirst) {
    this.session = session;
    this.isFirst = isFirst;
  }

  // --- install ---

  private static final Set KNOWN = Collections.newSetFromMap(new WeakHashMap()); // extensions that have the rules

  /** Adds the rules to this session, and to all that the application makes later. Returns what Spark lacks, or "". */
  public static synchronized String addTo(SparkSession session) {
    if (KNOWN.add(session.extensions())) {
      // since org.apache.spark.sql.catalyst.plans.logical.UnresolvedDataSource:
      session.extensions().injectHintResolutionRule(new Builder(true));
      // end
      session.extensions().injectResolutionRule(new Builder(true)); // before Spark 4.0, after Spark has resolved SQL on paths
      session.extensions().injectResolutionRule(new Builder(false));
      session.extensions().injectPostHocResolutionRule(new Builder(false)); // after Spark has converted tables of Hive
    }
    try {
      Object analyzer = session.sessionState().analyzer();
      add(analyzer, "extendedResolutionRules", new ParquetReads(session, true));
      add(analyzer, "extendedResolutionRules", new ParquetReads(session, false));
      add(analyzer, "postHocResolutionRules", new ParquetReads(session, false));
      return "";
    } catch (ReflectiveOperationException e) {
      return e.toString();
    } catch (RuntimeException e) { // Java does not let reflection change the field
      return e.toString();
    }
  }

  /** Spark has made the analyzer of a session that runs already, with the rules of that time. */
  private static void add(Object analyzer, String name, ParquetReads rule) throws ReflectiveOperationException {
    Field field = field(analyzer.getClass(), name);
    field.setAccessible(true);
    Seq rules = (Seq) field.get(analyzer);
    List found = new ArrayList();
    for (int i = 0; i < rules.size(); i++) {
      if (rules.apply(i) instanceof ParquetReads && ((ParquetReads) rules.apply(i)).isFirst == rule.isFirst) return;
      found.add(rules.apply(i));
    }
    found.add(rule.isFirst ? 0 : found.size(), rule);
    field.set(analyzer, ArraySeq$.MODULE$.unsafeWrapArray(found.toArray()));
  }

  private static Field field(Class owner, String name) throws NoSuchFieldException {
    for (Class one = owner; one != null; one = one.getSuperclass()) {
      Field[] fields = one.getDeclaredFields();
      for (int i = 0; i < fields.length; i++) if (fields[i].getName().equals(name)) return fields[i];
    }
    throw new NoSuchFieldException(owner.getName() + "." + name);
  }

  private static class Builder extends AbstractFunction1 {
    private final boolean isFirst;

    Builder(boolean isFirst) { this.isFirst = isFirst; }

    public Object apply(Object session) { return new ParquetReads((SparkSession) session, isFirst); }
  }

  // --- apply ---

  public String ruleName() { return "dbio_commit.ParquetReads" + (isFirst ? " before" : " after") + " Spark lists"; }

  private boolean isOn() { return "on".equals(session.conf().get(SWITCH, "off")); }

  public TreeNode apply(TreeNode plan) {
    if (!isFirst) return after((LogicalPlan) plan);
    return isOn() ? (TreeNode) ((LogicalPlan) plan).resolveOperatorsUp(new Before()) : plan;
  }

  private class Before extends AbstractPartialFunction {
    public boolean isDefinedAt(Object plan) {
      return plan instanceof UnresolvedRelation || isSource(plan) || plan instanceof CreateTempViewUsing;
    }

    /** By its name, as Spark 3.5 has no such class. */
    private boolean isSource(Object plan) { return plan.getClass().getSimpleName().equals("UnresolvedDataSource"); }

    public Object applyOrElse(Object plan, scala.Function1 otherwise) {
      LogicalPlan found = null;
      if (plan instanceof UnresolvedRelation) found = named((UnresolvedRelation) plan);
      else if (isDefinedAt(plan)) found = isSource(plan) ? source((LogicalPlan) plan) : view((LogicalPlan) plan);
      return found == null ? isDefinedAt(plan) ? plan : otherwise.apply(plan) : found;
    }
  }

  /** parquet.`path` in SQL. */
  private LogicalPlan named(UnresolvedRelation plan) {
    Seq parts = plan.multipartIdentifier();
    if (parts.size() != 2 || !isParquet(parts.head()) || plan.isStreaming() || isInCatalog((String) parts.apply(1))) return null;
    List paths = Collections.singletonList(parts.apply(1));
    java.util.Map options = new java.util.HashMap(plan.options().asCaseSensitiveMap());
    if (options.containsKey(ParquetRead.MARK)) return null;
    ParquetRead read = new ParquetRead(session, (Option) scala.None$.MODULE$, options);
    LogicalPlan found = read.before(paths);
    if (found != null) return found;
    options.put(ParquetRead.MARK, read.mark(paths)); // before Spark 4.0, it gets lost
    return new UnresolvedRelation(parts, new CaseInsensitiveStringMap(options), false);
  }

  /** Spark first looks for a table with this name. A name with a slash is a path. */
  private boolean isInCatalog(String name) {
    return name.indexOf('/') < 0 && session.sessionState().catalog().databaseExists("parquet")
        && session.sessionState().catalog().tableExists(new TableIdentifier(name, (Option) new scala.Some("parquet")));
  }

  /** `spark.read`, which Spark 4 resolves in the analyzer. */
  private LogicalPlan source(LogicalPlan plan) {
    if (!isParquet(plan.productElement(0)) || ((Boolean) plan.productElement(3)).booleanValue()) return null;
    java.util.Map options = ParquetRead.javaMap((Map) plan.productElement(2));
    List paths = new ArrayList();
    for (int i = 0; i < ((Seq) plan.productElement(4)).size(); i++) paths.add(((Seq) plan.productElement(4)).apply(i));
    if (options.containsKey(ParquetRead.MARK)) return null;
    ParquetRead read = new ParquetRead(session, (Option) plan.productElement(1), options);
    if (read.option("path") != null) paths.add(read.option("path"));
    LogicalPlan found = read.before(paths);
    if (found != null) return found;
    return marked(plan, 2, read.mark(paths));
  }

  /** The same plan, with what the second rule must know among the options, which are the part with this number. */
  private static LogicalPlan marked(LogicalPlan plan, int options, String mark) {
    Object[] given = new Object[plan.productArity()];
    for (int i = 0; i < given.length; i++) given[i] = plan.productElement(i);
    given[options] = ((Map) given[options]).updated(ParquetRead.MARK, mark);
    try {
      return (LogicalPlan) plan.getClass().getConstructors()[0].newInstance(given);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  /**
   * CREATE TEMPORARY VIEW … USING parquet: Spark would list files now, once for all queries of the view. A view of the text
   * has, in each query, the rows that are committed then.
   */
  private LogicalPlan view(LogicalPlan plan) {
    java.util.Map options = ParquetRead.javaMap((Map) plan.productElement(5));
    ParquetRead read = new ParquetRead(session, (Option) plan.productElement(1), options);
    String path = read.option("path");
    if (!isParquet(plan.productElement(4)) || path == null) return null;
    boolean isPlain = ((Option) plan.productElement(1)).isEmpty() && options.size() == 1;
    if (!isPlain || !read.isOfTables(Collections.singletonList(path))) {
      return options.containsKey(ParquetRead.MARK) ? null : marked(plan, 5, read.mark(Collections.singletonList(path)));
    }
    String name = ((TableIdentifier) plan.productElement(0)).quotedString();
    String text = "CREATE " + (isTrue(plan, 2) ? "OR REPLACE " : "") + (isTrue(plan, 3) ? "GLOBAL " : "") + "TEMPORARY VIEW "
        + name + " AS SELECT * FROM parquet." + SqlTable.quoted(path);
    try {
      return (LogicalPlan) ((LogicalPlan) session.sessionState().sqlParser().parsePlan(text)).resolveOperatorsUp(new Before());
    } catch (ParseException e) {
      throw new IllegalStateException(e);
    }
  }

  private static boolean isTrue(LogicalPlan plan, int i) { return ((Boolean) plan.productElement(i)).booleanValue(); }

  static boolean isParquet(Object format) {
    String name = String.valueOf(format).toLowerCase(java.util.Locale.ROOT);
    return name.equals("parquet") || name.startsWith("org.apache.spark.sql") && name.contains("parquet");
  }

  // --- after Spark has listed ---

  private static final TreeNodeTag CHECKED = new TreeNodeTag("dbio_commit.checked");

  /** Leaves out what was analysed before, except relations that Spark keeps for tables of its catalog. */
  private LogicalPlan after(LogicalPlan plan) {
    if (plan instanceof LogicalRelation && isParquet((LogicalRelation) plan)) {
      LogicalRelation relation = (LogicalRelation) plan;
      boolean isPinned = plan.analyzed() && relation.catalogTable().isEmpty();
      return isPinned || ParquetRead.isSeen((HadoopFsRelation) relation.relation()) ? plan : read(relation);
    }
    if (plan.analyzed()) return plan;
    if (plan.children().isEmpty()) {
      if (isOn()) check(plan);
      return plan;
    }
    Object[] children = new Object[plan.children().size()];
    boolean isNew = false;
    for (int i = 0; i < children.length; i++) {
      children[i] = after((LogicalPlan) plan.children().apply(i));
      isNew |= children[i] != plan.children().apply(i);
    }
    return isNew ? (LogicalPlan) plan.withNewChildren((Seq) ArraySeq$.MODULE$.unsafeWrapArray(children)) : plan;
  }

  private static boolean isParquet(LogicalRelation plan) {
    return plan.relation() instanceof HadoopFsRelation && ((HadoopFsRelation) plan.relation()).fileFormat() instanceof ParquetFileFormat;
  }

  private LogicalPlan read(LogicalRelation plan) {
    HadoopFsRelation relation = (HadoopFsRelation) plan.relation();
    ParquetRead read = ParquetRead.of(session, plan);
    try {
      if (!ParquetRead.isListed(relation.location())) return plan;
      LogicalPlan found = isOn() && !plan.isStreaming() ? read.after(plan, relation) : null;
      return found == null ? read.seen(plan, relation) : found;
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  /** Refuses streams out of files of tables, and Spark's other reader of Parquet. */
  private void check(LogicalPlan plan) {
    if (plan.getTagValue(CHECKED).isDefined()) return;
    List paths = null;
    String instead = null;
    if (plan.getClass().getSimpleName().equals("StreamingRelation") && plan.productElement(0) instanceof DataSource) {
      DataSource source = (DataSource) plan.productElement(0);
      if (!isParquet(source.className())) return;
      paths = new ArrayList();
      for (int i = 0; i < source.paths().size(); i++) paths.add(source.paths().apply(i));
      String path = new ParquetRead(session, source.userSpecifiedSchema(), ParquetRead.javaMap((Map) source.options())).option("path");
      if (path != null) paths.add(path);
      instead = "a stream of its files has rows of dead jobs, and rows again after each rewrite: use"
          + " spark.readStream.table(\"dbio.`PATH`\") or spark.readStream.format(\"dbio\").load(\"PATH\"), with a new checkpoint";
    } else if (plan instanceof DataSourceV2Relation && ((DataSourceV2Relation) plan).table() instanceof FileTable) {
      FileTable table = (FileTable) ((DataSourceV2Relation) plan).table();
      if (!table.formatName().equalsIgnoreCase("parquet")) return;
      paths = new ArrayList();
      for (int i = 0; i < table.fileIndex().rootPaths().size(); i++) paths.add(table.fileIndex().rootPaths().apply(i).toString());
      instead = "Spark's second reader of Parquet cannot leave out files of dead jobs: unset"
          + " spark.sql.sources.useV1SourceList, or read the table with dbio.read";
    }
    if (paths == null) return;
    Object table = new ParquetRead(session, (Option) scala.None$.MODULE$, new java.util.HashMap()).firstTable(paths);
    if (table != null) {
      throw new IllegalStateException("dbio_commit.UnsupportedTableError: " + table + " is a dbio table, and "
          + instead.replace("PATH", table.toString()));
    }
    plan.setTagValue(CHECKED, Boolean.TRUE);
  }
}
