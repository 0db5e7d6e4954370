package dbio_commit;

import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.ChecksumFileSystem;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FutureDataInputStreamBuilder;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.util.functional.FutureIO;
import org.apache.spark.SparkContext;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.internal.io.FileNameSpec;
import org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol;
import org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * The commit protocol of a session with `dbio.enable(spark, parquet=True)`. It writes data files to their final place,
 * under names of a transaction. Python makes all decisions: see `ask`. Writes that are no transactions go to the commit
 * protocol that the session had before.
 *
 * Janino compiles this file: it knows no lambdas, and elements of collections must be cast.
 */
public class CommitProtocol extends FileCommitProtocol implements Serializable {
  /** The version of the requests and answers. `session/jvm.py` has the same. */
  public static final String VERSION = "2 for Scala 2.13";
  /** The system property with the Bridge to Python. It is used as a Function, since class loaders may differ. */
  public static final String HANDLER = "dbio_commit.handler";
  /** The topic of the questions to the Bridge. */
  public static final String TOPIC = "commit protocol";

  private static final Pattern SUFFIX = Pattern.compile("(_\\d+)?[-.]c\\d+(\\..*)?");
  private static final int TAIL_BYTES = 64 * 1024;
  private final String jobId;
  private final String path;
  private final boolean dynamic;
  private boolean decided;
  private FileCommitProtocol other;
  private String namePrefix;
  private String nameMiddle;
  private final ArrayList<String> deleted = new ArrayList<String>();
  private transient List<String> files;

  public CommitProtocol(String jobId, String path, boolean dynamicPartitionOverwrite) {
    this.jobId = jobId;
    this.path = path;
    this.dynamic = dynamicPartitionOverwrite;
  }

  // --- on the driver ---

  private String[] ask(String verb, List<String> more) {
    Function handler = (Function) System.getProperties().get(HANDLER);
    String execution = SparkContext.getOrCreate().getLocalProperty("spark.sql.execution.id");
    ArrayList<String> words = new ArrayList<String>(
        Arrays.asList(new String[] {verb, path, jobId, String.valueOf(dynamic), String.valueOf(execution)}));
    words.addAll(more);
    return ((String) handler.apply(new Object[] {TOPIC, String.join("\0", words), null})).split("\0");
  }

  /**
   * Whether the write goes to the other protocol. `deletes`: the write deletes everything at the path. The constructor
   * does not ask this, since Spark hides its errors.
   */
  private boolean isOther(FileSystem fs, boolean deletes) throws IOException {
    if (decided) return other != null;
    String table = path == null ? "" : tableAt(fs);
    String name = SQLHadoopMapReduceCommitProtocol.class.getName();
    if (System.getProperties().get(HANDLER) == null) {
      if (!table.isEmpty()) throw new IllegalStateException("dbio_commit.UnsupportedStoreError: " + table
          + " is a dbio table, and no Python of this driver has called dbio.enable(spark, parquet=True);"
          + " call that in a classic PySpark session and write there, or use dbio.write");
    } else if (path != null) {
      name = ask("whose", Arrays.asList(new String[] {table, String.valueOf(deletes)}))[0];
    }
    if (!name.isEmpty()) other = FileCommitProtocol.instantiate(name, jobId, path, dynamic);
    decided = true;
    return other != null;
  }

  /**
   * The table at the path, or the table above it if the path is a partition or a directory of Hive's staging; "" if
   * there is none.
   */
  private String tableAt(FileSystem fs) throws IOException {
    Path place = new Path(path);
    while (!fs.exists(new Path(place, "_dbio_table"))) {
      boolean inside = place.getName().indexOf('=') >= 0 || place.toString().indexOf("/.hive-staging") >= 0;
      if (!inside || place.getParent() == null) return "";
      place = place.getParent();
    }
    return place.toString();
  }

  public boolean deleteWithJob(FileSystem fs, Path target, boolean recursive) {
    try {
      if (isOther(fs, true)) return other.deleteWithJob(fs, target, recursive);
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
    deleted.add(target.toString());
    return true;
  }

  public void setupJob(JobContext context) {
    try {
      FileSystem fs = path == null ? null : new Path(path).getFileSystem(context.getConfiguration());
      if (isOther(fs, false)) { other.setupJob(context); return; }
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
    String[] answer = ask("setup", deleted);
    namePrefix = answer[0];
    nameMiddle = answer[1];
    for (int i = 2; i + 1 < answer.length; i += 2) context.getConfiguration().set(answer[i], answer[i + 1]);
  }

  public void commitJob(JobContext context, Seq<FileCommitProtocol.TaskCommitMessage> messages) {
    if (other != null) { other.commitJob(context, messages); return; }
    ArrayList<String> lines = new ArrayList<String>();
    scala.collection.Iterator all = messages.iterator();
    while (all.hasNext()) {
      lines.addAll(Arrays.asList((String[]) ((FileCommitProtocol.TaskCommitMessage) all.next()).obj()));
    }
    ask("commit", lines);
  }

  public void abortJob(JobContext context) {
    if (other != null) other.abortJob(context);
    else if (nameMiddle != null) ask("abort", new ArrayList<String>());
  }

  // --- in a task ---

  public void setupTask(TaskAttemptContext context) {
    if (other != null) other.setupTask(context);
    else files = new ArrayList<String>();
  }

  public String newTaskTempFile(TaskAttemptContext context, Option<String> directory, FileNameSpec spec) {
    if (other != null) return other.newTaskTempFile(context, directory, spec);
    Matcher suffix = SUFFIX.matcher(spec.suffix());
    String rest = !suffix.matches() ? spec.suffix()
        : (suffix.group(1) == null ? "" : suffix.group(1)) + (suffix.group(2) == null ? "" : suffix.group(2));
    Object[] ids = {Integer.valueOf(context.getTaskAttemptID().getTaskID().getId()), nameMiddle,
        Integer.valueOf(context.getTaskAttemptID().getId()), Integer.valueOf(files.size())};
    String name = spec.prefix() + namePrefix + String.format("-%05d-%s-%d-%d-c000", ids) + rest;
    files.add(directory.isDefined() ? (String) directory.get() + "/" + name : name);
    return new Path(path, (String) files.get(files.size() - 1)).toString();
  }

  public String newTaskTempFile(TaskAttemptContext context, Option<String> directory, String suffix) {
    return newTaskTempFile(context, directory, new FileNameSpec("", suffix));
  }

  public String newTaskTempFileAbsPath(TaskAttemptContext context, String directory, FileNameSpec spec) {
    if (other != null) return other.newTaskTempFileAbsPath(context, directory, spec);
    throw new IllegalStateException("dbio_commit.InvalidInputError: the catalog has a partition of " + path
        + " at " + directory + ", outside of the table; move it to its place in the table, then write again");
  }

  public String newTaskTempFileAbsPath(TaskAttemptContext context, String directory, String suffix) {
    return newTaskTempFileAbsPath(context, directory, new FileNameSpec("", suffix));
  }

  /** The files, which are closed now: size, footer and path of each. */
  public FileCommitProtocol.TaskCommitMessage commitTask(TaskAttemptContext context) {
    if (other != null) return other.commitTask(context);
    try {
      String[] lines = new String[files.size()];
      for (int i = 0; i < lines.length; i++) {
        Path file = new Path(path, (String) files.get(i));
        FileSystem fs = file.getFileSystem(context.getConfiguration());
        FileStatus status = fs.getFileStatus(file);
        lines[i] = status.getLen() + "\t" + footer(fs, status) + "\t" + (String) files.get(i);
        if (fs instanceof ChecksumFileSystem) {  // a local disk: a vacuum of the file would leave its .crc
          ChecksumFileSystem local = (ChecksumFileSystem) fs;
          local.getRawFileSystem().delete(local.getChecksumFile(file), false);
        }
      }
      return new FileCommitProtocol.TaskCommitMessage(lines);
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  /** The end of a Parquet file in base64: its footer, the footer's length and the magic bytes. */
  private static String footer(FileSystem fs, FileStatus status) throws IOException {
    long size = status.getLen();
    FutureDataInputStreamBuilder opening = fs.openFile(status.getPath()).withFileStatus(status);  // or S3A asks again
    FSDataInputStream stream = (FSDataInputStream) FutureIO.awaitFuture(opening.build());
    try {
      byte[] tail = new byte[(int) Math.min(size, (long) TAIL_BYTES)];
      stream.readFully(size - tail.length, tail);
      int length = tail.length < 8 ? 0 : ByteBuffer.wrap(tail).order(ByteOrder.LITTLE_ENDIAN).getInt(tail.length - 8);
      if (length < 0 || length + 8L > size) return "";
      if (length + 8 > tail.length) {
        tail = new byte[length + 8];
        stream.readFully(size - tail.length, tail);
      }
      return Base64.getEncoder().encodeToString(Arrays.copyOfRange(tail, tail.length - length - 8, tail.length));
    } finally {
      stream.close();
    }
  }

  public void abortTask(TaskAttemptContext context) {
    if (other != null) { other.abortTask(context); return; }
    for (int i = 0; files != null && i < files.size(); i++) {
      try {
        Path file = new Path(path, (String) files.get(i));
        file.getFileSystem(context.getConfiguration()).delete(file, false);
      } catch (IOException e) {
        org.slf4j.LoggerFactory.getLogger(CommitProtocol.class).warn("vacuum will delete the file: {}", e.toString());
      }
    }
  }

  /** For Spark's file sink of streams, which has a log of its own: refuses to write to a table. */
  public static class Stream extends ManifestFileCommitProtocol {
    private final String jobId;
    private final String path;

    public Stream(String jobId, String path) {
      super(jobId, path);
      this.jobId = jobId;
      this.path = path;
    }

    public void setupJob(JobContext context) {
      try {
        FileSystem fs = new Path(path).getFileSystem(context.getConfiguration());
        if (!new CommitProtocol(jobId, path, false).isOther(fs, false)) {
          throw new IllegalStateException("dbio_commit.InvalidInputError: " + path + " is a table, or below a root"
              + " for tables, and Spark's file sink of streams has no transactions; write each batch with foreachBatch,"
              + " as df.write.parquet with the options txnAppId and txnVersion, and remove _spark_metadata there");
        }
      } catch (IOException e) {
        throw new java.io.UncheckedIOException(e);
      }
      super.setupJob(context);
    }
  }
}
