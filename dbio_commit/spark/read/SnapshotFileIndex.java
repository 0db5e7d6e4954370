package dbio_commit;

import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.ZoneId;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.InterpretedPredicate;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.PartitioningUtils;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractPartialFunction;

/**
 * The files of a snapshot, for Spark's own reader, which then lists and infers nothing. `file_index.py` writes the list of
 * files. The list is kept as bytes. Planning a query makes objects only for files in partitions that the query reads.
 *
 * In the Java that Janino compiles: no lambdas and no generics, so that elements of collections are cast.
 */
public class SnapshotFileIndex implements FileIndex {
  /** Version of the list's form, and of the constructor. `jvm.py` has the same. */
  public static final String VERSION = "2 for Scala 2.13";

  private static final long BLOCK_BYTES = 128L * 1024 * 1024; // Spark expects a block size, which object stores lack

  private final String root;
  private final StructType partitionSchema;
  private final byte[] list;
  private final Directory[] directories;
  private final long files;
  private final long bytes;

  /**
   * `root` is an escaped URL; `list` is the path of a file of texts that each end with a zero byte. For each directory: its
   * escaped path from the root, a value for each partition column as in the name of a directory, the number of files, and
   * for each file its escaped name and its size.
   */
  public SnapshotFileIndex(String root, String list, StructType partitionSchema, String timeZone) throws IOException {
    this.root = root;
    this.partitionSchema = partitionSchema;
    this.list = Files.readAllBytes(Paths.get(list));
    ZoneId zone = ZoneId.of(timeZone);
    Texts texts = new Texts(this.list, 0);
    List found = new ArrayList();
    long allFiles = 0, allBytes = 0;
    while (texts.at < this.list.length) {
      String path = texts.next();
      Object[] values = new Object[partitionSchema.length()];
      for (int i = 0; i < values.length; i++) values[i] = typed(texts.next(), partitionSchema.fields()[i], zone, path);
      int count = (int) texts.nextNumber();
      found.add(new Directory(path, new GenericInternalRow(values), count, texts.at));
      for (int i = 0; i < count; i++) {
        texts.skip();
        allBytes += texts.nextNumber();
      }
      allFiles += count;
    }
    directories = (Directory[]) found.toArray(new Directory[0]);
    files = allFiles;
    bytes = allBytes;
  }

  private static Object typed(String value, StructField column, ZoneId zone, String path) {
    try {
      return PartitioningUtils.castPartValueToDesiredType(column.dataType(), value, zone);
    } catch (RuntimeException error) {
      throw new IllegalArgumentException("the directory " + path + " has the value " + value + " of partition column "
          + column.name() + ", which is no " + column.dataType().simpleString() + ": " + error.getMessage());
    }
  }

  // --- a FileIndex of Spark ---

  public Seq rootPaths() {
    return ArraySeq$.MODULE$.unsafeWrapArray(new Path[] {new Path(URI.create(root))});
  }

  public StructType partitionSchema() {
    return partitionSchema;
  }

  public long sizeInBytes() {
    return bytes;
  }

  public void refresh() {} // a snapshot does not change

  public String[] inputFiles() {
    String[] found = new String[(int) files];
    int n = 0;
    for (int d = 0; d < directories.length; d++) {
      Texts texts = new Texts(list, directories[d].start);
      for (int i = 0; i < directories[d].count; i++) {
        found[n++] = directories[d].url(root, texts.next());
        texts.skip();
      }
    }
    return found;
  }

  public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
    InterpretedPredicate wanted = predicate(partitionFilters);
    List found = new ArrayList();
    for (int d = 0; d < directories.length; d++) {
      Directory one = directories[d];
      if (wanted == null || wanted.eval(one.values)) found.add(PartitionDirectory.apply(one.values, one.files(root, list)));
    }
    return ArraySeq$.MODULE$.unsafeWrapArray(found.toArray());
  }

  public String toString() {
    return "dbio_commit snapshot of " + files + " files";
  }

  // --- partitions ---

  private InterpretedPredicate predicate(Seq filters) {
    if (filters.isEmpty()) return null;
    Expression all = (Expression) filters.head();
    for (int i = 1; i < filters.length(); i++) all = new And(all, (Expression) filters.apply(i));
    InterpretedPredicate predicate = Predicate$.MODULE$.createInterpreted((Expression) all.transform(new Bind(partitionSchema)));
    predicate.initialize(0);
    return predicate;
  }

  /** Replaces partition columns by their positions in the row of values. Spark has made their names equal to the schema's. */
  private static class Bind extends AbstractPartialFunction {
    private final StructType schema;

    Bind(StructType schema) {
      this.schema = schema;
    }

    public boolean isDefinedAt(Object expression) {
      return expression instanceof AttributeReference;
    }

    public Object applyOrElse(Object expression, scala.Function1 otherwise) {
      if (!isDefinedAt(expression)) return otherwise.apply(expression);
      int i = schema.fieldIndex(((AttributeReference) expression).name());
      return new BoundReference(i, schema.fields()[i].dataType(), true);
    }
  }

  // --- the list ---

  private static class Directory {
    final String path;
    final InternalRow values;
    final int count;
    final int start;

    Directory(String path, InternalRow values, int count, int start) {
      this.path = path;
      this.values = values;
      this.count = count;
      this.start = start;
    }

    String url(String root, String name) {
      return root + (path.isEmpty() ? "/" : "/" + path + "/") + name;
    }

    FileStatus[] files(String root, byte[] list) {
      FileStatus[] found = new FileStatus[count];
      Texts texts = new Texts(list, start);
      for (int i = 0; i < count; i++) {
        Path file = new Path(URI.create(url(root, texts.next())));
        found[i] = new FileStatus(texts.nextNumber(), false, 1, BLOCK_BYTES, 0, file);
      }
      return found;
    }
  }

  private static class Texts {
    private final byte[] list;
    int at;

    Texts(byte[] list, int at) {
      this.list = list;
      this.at = at;
    }

    void skip() {
      while (list[at++] != 0) {}
    }

    String next() {
      int start = at;
      skip();
      return new String(list, start, at - 1 - start, StandardCharsets.UTF_8);
    }

    long nextNumber() {
      long number = 0;
      while (list[at] != 0) number = 10 * number + (list[at++] - '0');
      at++;
      return number;
    }
  }
}
