package dbio_commit;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.NoopCache$;
import org.apache.spark.sql.execution.datasources.PartitionSpec;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * Files that are read together: of parts of tables, of several tables, of directories of DBIO, and of others. Spark finds
 * partitions in their paths, as in those of files that it has listed itself.
 */
public class LiveIndex extends PartitioningAwareFileIndex {
  private final Seq roots;
  private final scala.collection.mutable.LinkedHashMap files = new scala.collection.mutable.LinkedHashMap();
  private final Map byDirectory;
  private final StructType ifEmpty;
  private PartitionSpec spec;

  /** `types` are those of partition columns. `ifEmpty` are the partition columns of a read without files. */
  LiveIndex(SparkSession session, Map options, StructType types, Collection roots, Collection live, StructType ifEmpty) {
    super(session, options, (Option) new scala.Some(types), NoopCache$.MODULE$);
    this.roots = (Seq) ArraySeq$.MODULE$.unsafeWrapArray(roots.toArray());
    this.ifEmpty = ifEmpty;
    LinkedHashMap found = new LinkedHashMap();
    for (Iterator all = live.iterator(); all.hasNext(); ) {
      FileStatus one = (FileStatus) all.next();
      Path directory = one.getPath().getParent();
      files.put(one.getPath(), one);
      if (!found.containsKey(directory)) found.put(directory, new ArrayList());
      ((List) found.get(directory)).add(one);
    }
    Map map = (Map) Map$.MODULE$.empty();
    for (Iterator all = found.keySet().iterator(); all.hasNext(); ) {
      Object directory = all.next();
      map = (Map) map.updated(directory, ((List) found.get(directory)).toArray(new FileStatus[0]));
    }
    byDirectory = map;
  }

  public Seq rootPaths() { return roots; }
  public scala.collection.mutable.LinkedHashMap leafFiles() { return files; }
  public Map leafDirToChildrenFiles() { return byDirectory; }
  public void refresh() {} // a frame stays as it was made
  public String toString() { return "dbio_commit " + files.size() + " live files"; }

  public PartitionSpec partitionSpec() {
    if (spec == null) spec = files.isEmpty() ? new PartitionSpec(ifEmpty, (Seq) Nil$.MODULE$) : inferPartitioning();
    return spec;
  }

  /** Indexes are equal if their files are: by this, Spark finds what it has cached. */
  public boolean equals(Object other) {
    return other instanceof LiveIndex && ((LiveIndex) other).roots.equals(roots) && ((LiveIndex) other).files.keySet().equals(files.keySet());
  }

  public int hashCode() { return roots.hashCode(); }
}
