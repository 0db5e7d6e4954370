package dbio_commit;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.CatalogFileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusCache;
import org.apache.spark.sql.execution.datasources.InMemoryFileIndex;
import scala.None$;
import scala.Option;
import scala.Some;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Seq;

/**
 * The files of a partitioned table of Spark's catalog that is no dbio table. Spark lists its partitions when it plans a
 * query. Files with tids in their names are then read only if they are committed: those of directories of DBIO, and of
 * dbio tables that the catalog names as partitions.
 */
public class CommittedPartitions extends CatalogFileIndex {
  private final SparkSession session;

  CommittedPartitions(SparkSession session, CatalogTable table, long sizeInBytes) {
    super(session, table, sizeInBytes);
    this.session = session;
  }

  public InMemoryFileIndex filterPartitions(Seq filters) {
    InMemoryFileIndex found = super.filterPartitions(filters);
    ParquetRead read = new ParquetRead(session, (Option) None$.MODULE$, new HashMap());
    try {
      Map committed = read.committed(found);
      return committed == null ? found : new InMemoryFileIndex(session, found.rootPaths(),
          (scala.collection.immutable.Map) Map$.MODULE$.empty(), (Option) new Some(found.partitionSpec().partitionColumns()),
          new Known(committed, found.rootPaths()), (Option) new Some(found.partitionSpec()), (Option) None$.MODULE$);
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  /** Files that are known already, so that Spark lists nothing again. */
  private static class Known extends FileStatusCache {
    private final Map byRoot = new HashMap();

    Known(Map files, Seq roots) {
      for (int i = 0; i < roots.size(); i++) byRoot.put(roots.apply(i), new ArrayList());
      for (java.util.Iterator all = files.values().iterator(); all.hasNext(); ) {
        FileStatus one = (FileStatus) all.next();
        for (Path place = one.getPath().getParent(); place != null; place = place.getParent()) {
          if (byRoot.containsKey(place)) ((List) byRoot.get(place)).add(one);
        }
      }
    }

    public Option getLeafFiles(Path path) {
      List found = (List) byRoot.get(path);
      return (Option) (found == null ? None$.MODULE$ : new Some(found.toArray(new FileStatus[0])));
    }

    public void putLeafFiles(Path path, FileStatus[] files) {}
    public void invalidateAll() {}
  }
}
