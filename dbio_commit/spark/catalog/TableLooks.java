package dbio_commit;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.unsafe.Platform;

/**
 * Looks for dbio tables: one request for each directory. Hadoop's file systems make them, so that a read of other
 * directories does not need Python.
 */
class TableLooks {
  private static final String DESCRIPTOR = "_dbio_table";
  private static final int AT_ONCE = 32;
  private final SparkSession session;
  private Configuration conf;
  private final Map known = new HashMap(); // by directory: whether it is a table

  TableLooks(SparkSession session) { this.session = session; }

  Configuration conf() {
    if (conf == null) conf = session.sessionState().newHadoopConf();
    return conf;
  }

  /** For each of the paths the table at it, or the table that has it as a partition; null if there is none. */
  List tablesAt(List paths) throws IOException {
    Set tops = new LinkedHashSet(), others = new LinkedHashSet();
    for (int i = 0; i < paths.size(); i++) tops.add(top((Path) paths.get(i)));
    look(tops);
    for (int i = 0; i < paths.size(); i++) if (found((Path) paths.get(i)) == null) others.addAll(upTo((Path) paths.get(i)));
    look(others);
    List found = new ArrayList();
    for (int i = 0; i < paths.size(); i++) found.add(found((Path) paths.get(i)));
    return found;
  }

  Path tableAt(Path path) throws IOException {
    List one = new ArrayList();
    one.add(path);
    return (Path) tablesAt(one).get(0);
  }

  private Path found(Path path) {
    List all = upTo(path);
    for (int i = all.size() - 1; i >= 0; i--) if (Boolean.TRUE.equals(known.get(all.get(i)))) return (Path) all.get(i);
    return null;
  }

  /** The directory that would be the table if the names at the end of the path were partitions of it. */
  static Path top(Path path) {
    List all = upTo(path);
    return (Path) all.get(all.size() - 1);
  }

  private static List upTo(Path path) {
    List found = new ArrayList();
    found.add(path);
    while (path.getName().indexOf('=') > 0 && path.getParent() != null) {
      path = path.getParent();
      found.add(path);
    }
    return found;
  }

  private void look(Set directories) throws IOException {
    conf();
    List unknown = new ArrayList(directories);
    unknown.removeAll(known.keySet());
    if (unknown.size() == 1) known.put(unknown.get(0), new Look((Path) unknown.get(0)).call());
    if (unknown.size() < 2) return;
    ExecutorService threads = Executors.newFixedThreadPool(Math.min(unknown.size(), AT_ONCE));
    try {
      List looks = new ArrayList();
      for (int i = 0; i < unknown.size(); i++) looks.add(new Look((Path) unknown.get(i)));
      List answers = threads.invokeAll(looks);
      for (int i = 0; i < unknown.size(); i++) known.put(unknown.get(i), ((Future) answers.get(i)).get());
    } catch (ExecutionException e) {
      Platform.throwException(e.getCause());
    } catch (InterruptedException e) {
      Platform.throwException(e);
    } finally {
      threads.shutdownNow();
    }
  }

  private class Look implements Callable {
    private final Path directory;

    Look(Path directory) { this.directory = directory; }

    /** With `isFile`, S3A makes one request, and with `exists` two. */
    public Object call() throws IOException {
      return Boolean.valueOf(directory.getFileSystem(conf).isFile(new Path(directory, DESCRIPTOR)));
    }
  }
}
