package dbio_commit;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.GlobFilter;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTablePartition;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.CatalogFileIndex;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import scala.None$;
import scala.Option;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/** One read of Parquet by paths, or by a name of Spark's catalog: which of it are dbio tables, and what it gets of them. */
class ParquetRead {
  static final String MARK = "dbio.read"; // an option by which the first rule passes to the second what only the first knows
  private static final String SEEN = "seen"; // its value once the second rule has seen the read
  private static final int MOST_TABLES = 100, MOST_PATHS = 100, MOST_LISTINGS = 5, MOST_DIRECTORIES = 8;
  private final SparkSession session;
  private Option schema; // which the caller gave, or the catalog
  private final Map options = new HashMap(); // with names in lower case
  private final TableLooks looks;
  private boolean isOrdinary; // `before` has looked

  ParquetRead(SparkSession session, Option schema, Map options) {
    this.session = session;
    this.schema = schema;
    for (Iterator all = options.keySet().iterator(); all.hasNext(); ) {
      String name = (String) all.next();
      this.options.put(name.toLowerCase(Locale.ROOT), options.get(name));
    }
    looks = new TableLooks(session);
  }

  String option(String name) { return (String) options.get(name); }

  private boolean has(String prefix) {
    for (Iterator all = options.keySet().iterator(); all.hasNext(); ) if (((String) all.next()).startsWith(prefix)) return true;
    return false;
  }

  // --- before Spark lists: if all of it is in dbio tables ---

  /** The plan of the read; null if Spark must list something. */
  LogicalPlan before(List paths) {
    try {
      GivenPaths given = given(paths);
      List tables = given == null ? null : looks.tablesAt(given.literals());
      isOrdinary = tables != null && paths.size() == 1 && !given.hasPatterns && tables.get(0) == null;
      if (tables == null || tables.contains(null) || has("modified")) return null;
      Map places = loaded(tables);
      if (isWhole(given, places, Collections.emptySet())) return whole((SqlTable) places.get(tables.get(0)));
      return fresh(relation(places, given, given.literals(), live(places, given), Collections.emptyList(), null));
    } catch (IOException e) { // Spark says so when it lists, or `after` when it looks again
      return null;
    }
  }

  boolean isOfTables(List paths) {
    try {
      GivenPaths given = given(paths);
      return given != null && !looks.tablesAt(given.literals()).contains(null);
    } catch (IOException e) { // as in `before`
      return false;
    }
  }

  /** The first of the tables in these paths; null if there is none. */
  Object firstTable(List paths) {
    try {
      List tables = looks.tablesAt(GivenPaths.of(looks.conf(), paths).literals());
      for (int i = 0; i < tables.size(); i++) if (tables.get(i) != null) return tables.get(i);
      return null;
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  /** Null if some seem to be names of files, or if there are many: `after` knows better which they are. */
  private GivenPaths given(List paths) throws IOException {
    for (int i = 0; i < paths.size(); i++) {
      String name = new Path((String) paths.get(i)).getName();
      if (name.indexOf("-tid-") >= 0 || paths.size() > 1 && name.endsWith(".parquet") && name.indexOf('*') < 0) return null;
    }
    return paths.isEmpty() || paths.size() > MOST_PATHS ? null : GivenPaths.of(looks.conf(), paths);
  }

  private LogicalPlan whole(SqlTable table) {
    Set own = new HashSet(options.keySet());
    own.remove("path");
    own.remove("mergeschema"); // a table has one schema
    if (schema.isEmpty()) checkColumns(table.schema);
    if (schema.isEmpty() && own.isEmpty()) {
      Rules.addTo(session);
      return (LogicalPlan) DataSourceV2Relation$.MODULE$.create(table, (Option) None$.MODULE$, (Option) None$.MODULE$);
    }
    return fresh(rowsAs(table, schema.isEmpty() ? table.schema : (StructType) schema.get()));
  }

  private HadoopFsRelation rowsAs(SqlTable table, StructType columns) {
    return Questions.rowsAs(session, table.token, columns, options);
  }

  /** As Spark reads a directory without files. */
  private void checkColumns(StructType found) {
    if (found.isEmpty()) throwAnalysis("UNABLE_TO_INFER_SCHEMA", "format", "Parquet, since no write of it has been committed");
  }

  private static void throwAnalysis(String condition, String name, String value) {
    Platform.throwException(new AnalysisException(condition,
        (scala.collection.immutable.Map) ((scala.collection.immutable.Map) Map$.MODULE$.empty()).updated(name, value)));
  }

  /** By its place, each table, pinned. A place whose value is null is a directory of DBIO. */
  private Map loaded(Collection tables) {
    Map found = new LinkedHashMap();
    for (Iterator all = tables.iterator(); all.hasNext(); ) {
      Object place = all.next();
      if (place != null) found.put(place, null);
    }
    if (found.size() > MOST_TABLES) {
      throw new IllegalStateException("dbio_commit.UnsupportedTableError: one read of Parquet is of " + found.size()
          + " dbio tables, and at most " + MOST_TABLES + " are read together; read them one by one with dbio.read, and unite"
          + " the frames");
    }
    for (Iterator all = found.keySet().iterator(); all.hasNext(); ) {
      Path place = (Path) all.next();
      SqlTable table = Questions.loadForFiles(session, place.toString());
      if (table == null) throwAnalysis("PATH_NOT_FOUND", "path", place.toString()); // it is being dropped
      found.put(place, table);
    }
    return found;
  }

  // --- files of parts of tables, of several tables, of directories of DBIO, and others ---

  /**
   * A relation of live files, by their paths, and of others. `like` is what Spark has made of them; null if it has listed
   * nothing.
   */
  private HadoopFsRelation relation(
      Map places, GivenPaths given, Collection roots, Map live, Collection others, HadoopFsRelation like) {
    Map files = new LinkedHashMap(live);
    for (Iterator all = others.iterator(); all.hasNext(); ) {
      Object one = all.next();
      files.put(ListedFiles.path(one), one);
    }
    Set own = new LinkedHashSet(given.hasPatterns ? Collections.emptySet() : roots);
    for (Iterator all = files.keySet().iterator(); all.hasNext(); ) {
      Path root = given.rootOf((Path) all.next());
      if (root != null) own.add(root);
    }
    if (own.isEmpty()) own.addAll(given.literals());
    List found = new ArrayList(files.values());
    scala.collection.immutable.Map passed = passed(places.containsValue(null) || !others.isEmpty());
    LiveIndex index = new LiveIndex(session, passed, types(places), own, found, partitionsBelow(places, given));
    StructType partitions = index.partitionSchema();
    StructType columns = columns(places, others, found, like, partitions, passed);
    if (schema.isEmpty()) checkColumns(columns);
    return new HadoopFsRelation(index, partitions, columns, (Option) None$.MODULE$, new ParquetFileFormat(), passed, session);
  }

  /** By their paths, the live files of tables and the visible ones of directories in the given paths. */
  private Map live(Map places, GivenPaths given) {
    Map found = new LinkedHashMap();
    for (Iterator all = places.keySet().iterator(); all.hasNext(); ) {
      Path place = (Path) all.next();
      SqlTable table = (SqlTable) places.get(place);
      FileIndex index = table == null ? Questions.directory(session, place.toString())
          : Questions.files(session, table.token, given.below(place));
      if (index == null) throwAnalysis("PATH_NOT_FOUND", "path", place.toString()); // it is being dropped
      Seq directories = index.listFiles((Seq) Nil$.MODULE$, (Seq) Nil$.MODULE$);
      for (int i = 0; i < directories.size(); i++) {
        Seq files = ((PartitionDirectory) directories.apply(i)).files();
        for (int j = 0; j < files.size(); j++) {
          FileStatus one = ((FileStatusWithMetadata) files.apply(j)).fileStatus();
          if (given.rootOf(one.getPath()) != null && isWanted(one.getPath())) found.put(one.getPath(), one);
        }
      }
    }
    return found;
  }

  private boolean isWanted(Path file) {
    try {
      return option("pathglobfilter") == null || new GlobFilter(option("pathglobfilter")).accept(file);
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  /** Types of partition columns: those of the caller or the catalog, else those that all of the tables record. */
  private StructType types(Map places) {
    Map found = new LinkedHashMap();
    for (Iterator all = places.values().iterator(); all.hasNext(); ) {
      SqlTable table = (SqlTable) all.next();
      for (int i = 0; table != null && i < table.partitionColumns.length; i++) {
        StructField own = Columns.field(table.schema, table.partitionColumns[i]);
        Object key = own.name().toLowerCase(Locale.ROOT), known = found.get(key);
        boolean differs = found.containsKey(key) && (known == null || !((StructField) known).dataType().equals(own.dataType()));
        found.put(key, differs ? null : own);
      }
    }
    StructType types = schema.isEmpty() ? new StructType() : (StructType) schema.get();
    for (Iterator all = found.values().iterator(); all.hasNext(); ) {
      StructField own = (StructField) all.next();
      if (own != null && Columns.field(types, own.name()) == null) types = types.add(own);
    }
    return types;
  }

  /** The partition columns of a read without files: if it is of one table, those that its paths have below the base. */
  private StructType partitionsBelow(Map places, GivenPaths given) {
    StructType found = new StructType();
    Path place = (Path) places.keySet().iterator().next();
    SqlTable table = (SqlTable) places.get(place);
    if (places.size() > 1 || table == null || has("recursivefilelookup")) return found;
    Path base = option("basepath") == null ? (Path) given.literals().get(0) : qualified(option("basepath"));
    for (int i = Math.max(0, base.depth() - place.depth()); i < table.partitionColumns.length; i++) {
      found = found.add(Columns.field(types(places), table.partitionColumns[i]));
    }
    return found;
  }

  /** The columns in the files: those of the caller, else the recorded ones, else as Spark infers them. */
  private StructType columns(
      Map places, Collection others, List files, HadoopFsRelation like, StructType partitions,
      scala.collection.immutable.Map passed) {
    Set recorded = new LinkedHashSet(); // columns of each table, without partition columns
    for (Iterator all = places.values().iterator(); all.hasNext(); ) {
      SqlTable table = (SqlTable) all.next();
      if (table != null) recorded.add(Columns.without(table.schema, table.partitionColumns));
    }
    if (!schema.isEmpty()) return Columns.without((StructType) schema.get(), partitions.fieldNames());
    if (recorded.size() == 1 && others.isEmpty() && !places.containsValue(null)) {
      return Columns.without((StructType) recorded.iterator().next(), partitions.fieldNames());
    }
    Option inferred = new ParquetFileFormat().inferSchema(session, passed, seq(files));
    StructType found = Columns.without(
        inferred.isDefined() ? ((StructType) inferred.get()).asNullable() : like == null ? new StructType() : like.dataSchema(),
        partitions.fieldNames());
    for (Iterator all = recorded.iterator(); all.hasNext(); ) found = Columns.typed(found, (StructType) all.next());
    return found;
  }

  /** The options of the caller. Times in the names of a table's directories are in UTC. */
  private scala.collection.immutable.Map passed(boolean areOthers) {
    scala.collection.immutable.Map found = (scala.collection.immutable.Map) Map$.MODULE$.empty();
    for (Iterator all = options.keySet().iterator(); all.hasNext(); ) {
      Object name = all.next();
      if (!name.equals(MARK)) found = (scala.collection.immutable.Map) found.updated(name, options.get(name));
    }
    return areOthers || has("timezone") ? found : (scala.collection.immutable.Map) found.updated("timezone", "UTC");
  }

  private Path qualified(String text) {
    try {
      Path path = new Path(text);
      return path.getFileSystem(looks.conf()).makeQualified(path);
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  private static LogicalPlan fresh(HadoopFsRelation relation) {
    return Reading.relation(relation, DataTypeUtils.toAttributes(relation.schema()));
  }

  // --- after Spark has listed ---

  /** For the second rule: `mark` is the option that the first rule has added, if it saw this read. */
  static ParquetRead of(SparkSession session, LogicalRelation plan) {
    HadoopFsRelation relation = (HadoopFsRelation) plan.relation();
    Map options = javaMap(relation.options());
    String[] mark = Asking.split(options.get(MARK));
    boolean isGiven = plan.catalogTable().isDefined() || mark.length > 0 && mark[0].contains("schema");
    ParquetRead found = new ParquetRead(session, (Option) (isGiven ? new scala.Some(relation.schema()) : None$.MODULE$), options);
    found.isOrdinary = mark.length > 0 && mark[0].contains("ordinary");
    return found;
  }

  /** What `after` cannot see in what Spark has listed: whether the caller gave columns, and patterns in paths. */
  String mark(List paths) {
    String flags = (isOrdinary ? "ordinary " : "") + (schema.isEmpty() ? "" : "schema") + "|";
    boolean hasPatterns = false;
    for (int i = 0; i < paths.size(); i++) hasPatterns |= GivenPaths.isPattern((String) paths.get(i));
    return hasPatterns ? flags + "\0" + String.join("\0", paths) : flags;
  }

  /** Whether Spark itself has made the index, by a listing. */
  static boolean isListed(FileIndex index) {
    return index instanceof CatalogFileIndex && !(index instanceof CommittedPartitions)
        || index instanceof PartitioningAwareFileIndex && !(index instanceof LiveIndex);
  }

  /** The same plan, which both rules leave as it is from now on. */
  LogicalPlan seen(LogicalRelation plan, HadoopFsRelation relation) {
    return copy(plan, with(relation, relation.location()), plan.output());
  }

  static boolean isSeen(HadoopFsRelation relation) {
    return relation.options().contains(MARK) && relation.options().apply(MARK).equals(SEEN);
  }

  private HadoopFsRelation with(HadoopFsRelation relation, FileIndex index) {
    return new HadoopFsRelation(index, relation.partitionSchema(), relation.dataSchema(), relation.bucketSpec(),
        relation.fileFormat(), (scala.collection.immutable.Map) relation.options().updated(MARK, SEEN), session);
  }

  private static LogicalPlan copy(LogicalRelation plan, HadoopFsRelation relation, Seq output) {
    Object[] given = new Object[5];
    for (int i = 0; i < given.length; i++) given[i] = i < plan.productArity() ? plan.productElement(i) : None$.MODULE$;
    given[0] = relation;
    given[1] = output;
    return Reading.relation(given);
  }

  /** The plan of the read; null if no table and no directory of DBIO is in it. */
  LogicalPlan after(LogicalRelation plan, HadoopFsRelation relation) throws IOException {
    Path first = (Path) relation.location().rootPaths().head();
    if (plan.catalogTable().isDefined() && relation.location().rootPaths().size() == 1) {
      Path at = looks.tableAt(first);
      if (at != null) {
        checkPartitions(plan, first);
        Map places = loaded(Collections.singleton(at));
        GivenPaths given = GivenPaths.of(Collections.singletonList(first));
        HadoopFsRelation found = at.equals(first) ? rowsAs((SqlTable) places.get(at), relation.schema())
            : relation(places, given, given.literals(), live(places, given), Collections.emptyList(), relation);
        return copy(plan, found, plan.output());
      }
    }
    if (relation.location() instanceof CatalogFileIndex) {
      CatalogTable table = (CatalogTable) plan.catalogTable().get();
      FileIndex index = new CommittedPartitions(session, table, relation.location().sizeInBytes());
      return copy(plan, with(relation, index), plan.output());
    }
    LogicalPlan found = listed((PartitioningAwareFileIndex) relation.location(), relation);
    if (found == null || plan.catalogTable().isEmpty()) return found;
    return copy(plan, (HadoopFsRelation) ((LogicalRelation) found).relation(), plan.output());
  }

  /** Spark's catalog may have a partition of a table anywhere. */
  private void checkPartitions(LogicalRelation plan, Path root) {
    if (!(((HadoopFsRelation) plan.relation()).location() instanceof CatalogFileIndex)) return;
    CatalogTable table = (CatalogTable) plan.catalogTable().get();
    Seq all = session.sessionState().catalog().listPartitions(table.identifier(), (Option) None$.MODULE$);
    for (int i = 0; i < all.size(); i++) {
      Path place = new Path(((CatalogTablePartition) all.apply(i)).location());
      if (!qualified(place.toString()).toString().startsWith(root + "/")) {
        throw new IllegalStateException("dbio_commit.UnsupportedTableError: the catalog has a partition of " + root + " at "
            + place + ", outside of the dbio table; write its rows to the table, and remove it with ALTER TABLE … DROP"
            + " PARTITION, or read the table with dbio.read");
      }
    }
  }

  /** The plan with committed files only, of what Spark has listed; null if no table and no directory of DBIO is in it. */
  private LogicalPlan listed(PartitioningAwareFileIndex index, HadoopFsRelation relation) throws IOException {
    List texts = paths();
    GivenPaths known = texts.isEmpty() ? null : GivenPaths.of(looks.conf(), texts);
    Set before = null; // the live files before the last listing
    for (int listings = 1; listings <= MOST_LISTINGS; listings++) {
      List all = ListedFiles.of(index);
      Set named = ListedFiles.named(all, index.rootPaths(), known);
      // The first rule looked before Spark listed. A table that was made meanwhile has files with tids.
      if (isOrdinary && !has("recursivefilelookup") && !ListedFiles.haveTids(all, named)) return null;
      List roots = ListedFiles.roots(all, index.rootPaths(), named);
      Map places = places(all, roots, named);
      if (places.isEmpty()) return null;
      if (option(MARK) == null && schema.isEmpty() && isOfCaller(relation, all)) schema = new scala.Some(relation.schema());
      GivenPaths given = known != null ? known : GivenPaths.of(roots);
      if (isWhole(given, places, named)) return whole((SqlTable) places.values().iterator().next());
      List others = new ArrayList();
      for (int i = 0; i < all.size(); i++) if (ListedFiles.isOther(all.get(i), places, named)) others.add(all.get(i));
      Map live = live(places, given);
      if (has("modified")) { // times are in listings only, so one is needed that is of the same state
        if (!live.keySet().equals(before)) {
          before = new HashSet(live.keySet());
          index.refresh();
          continue;
        }
        live = ListedFiles.among(live, all);
      }
      return fresh(relation(places, given, roots, live, others, relation));
    }
    throw new IllegalStateException("dbio_commit.StoreError: the tables of a read with modifiedBefore or modifiedAfter have"
        + " changed during each of " + MOST_LISTINGS + " listings; read again, or read with dbio.read");
  }

  /** The paths or patterns of the caller, as far as they are known. */
  private List paths() {
    String[] mark = Asking.split(option(MARK));
    List found = new ArrayList();
    for (int i = 1; i < mark.length; i++) found.add(mark[i]);
    if (mark.length == 0 && option("path") != null) found.add(option("path"));
    return found;
  }

  /** The tables and the directories of DBIO that the files are in. */
  private Map places(List all, List roots, Set named) throws IOException {
    Set asked = new HashSet(roots), given = new LinkedHashSet(roots);
    for (int i = 0; i < all.size() && has("recursivefilelookup"); i++) {
      if (!named.contains(ListedFiles.path(all.get(i)))) given.add(ListedFiles.path(all.get(i)).getParent());
    }
    Map places = loaded(looks.tablesAt(new ArrayList(given)));
    Map others = new LinkedHashMap(); // by the top of a directory of DBIO, the directories with its files
    for (int i = 0; i < all.size(); i++) {
      Path file = ListedFiles.path(all.get(i)), top = TableLooks.top(file.getParent());
      // a list of files that another program has published may name files that are elsewhere
      boolean isKnown = named.contains(file) || !ListedFiles.isOther(all.get(i), places, named);
      if (!ListedFiles.isOfDbio(file) || isKnown || !ListedFiles.isIn(file, asked)) continue;
      if (!others.containsKey(top)) others.put(top, new LinkedHashSet());
      ((Set) others.get(top)).add(file.getParent());
    }
    for (Iterator each = others.keySet().iterator(); each.hasNext(); ) {
      Path top = (Path) each.next();
      Set directories = (Set) others.get(top);
      if (ListedFiles.isIn(top, asked) || directories.size() > MOST_DIRECTORIES) places.put(top, null);
      else for (Iterator one = directories.iterator(); one.hasNext(); ) places.put(one.next(), null);
    }
    return places;
  }

  /** By their paths, the files of partitions that Spark has listed, if some are committed by tids; null if none are. */
  Map committed(PartitioningAwareFileIndex index) throws IOException {
    List all = ListedFiles.of(index);
    Set named = Collections.emptySet(), directories = new LinkedHashSet();
    for (int i = 0; i < all.size(); i++) {
      Path file = ListedFiles.path(all.get(i));
      if (ListedFiles.isOfDbio(file)) directories.add(file.getParent());
    }
    if (directories.isEmpty()) return null;
    List roots = new ArrayList(directories);
    Map places = places(all, roots, named), found = live(places, GivenPaths.of(roots));
    for (int i = 0; i < all.size(); i++) {
      if (ListedFiles.isOther(all.get(i), places, named)) found.put(ListedFiles.path(all.get(i)), all.get(i));
    }
    return found;
  }

  private boolean isWhole(GivenPaths given, Map places, Set named) {
    Object place = places.keySet().iterator().next();
    return places.size() == 1 && places.get(place) != null && named.isEmpty() && given.isOnly((Path) place) && !isOdd();
  }

  private boolean isOdd() { return has("basepath") || has("recursivefilelookup") || has("pathglobfilter") || has("modified"); }

  /** Before Spark 4.0: whether the caller gave the columns. If not, they are those that Spark infers. */
  private boolean isOfCaller(HadoopFsRelation relation, List all) {
    try {
      Option inferred = relation.fileFormat().inferSchema(session, relation.options(), seq(all));
      if (inferred.isEmpty()) return true;
      StructType columns = Columns.without(((StructType) inferred.get()).asNullable(), relation.partitionSchema().fieldNames());
      return !columns.equals(relation.dataSchema().asNullable());
    } catch (Exception e) { // Spark could not have inferred them
      return true;
    }
  }

  private static Seq seq(List all) { return (Seq) ArraySeq$.MODULE$.unsafeWrapArray(all.toArray()); }

  static Map javaMap(scala.collection.immutable.Map map) {
    Map found = new HashMap();
    for (scala.collection.Iterator all = map.keysIterator(); all.hasNext(); ) {
      Object name = all.next();
      found.put(name, map.apply(name));
    }
    return found;
  }
}
