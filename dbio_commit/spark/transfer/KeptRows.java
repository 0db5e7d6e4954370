package dbio_commit;

import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LogicalRDD$;
import org.apache.spark.storage.StorageLevel$;
import org.apache.spark.util.CollectionAccumulator;
import scala.collection.AbstractIterator;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * Rows that are computed once. The first job that reads them keeps them on executors. Later jobs get the rows that this
 * job saw, or an error if no executor has them any more.
 *
 * Spark's local checkpoint does not ensure that. It computes rows again that were lost by the end of the first job. If
 * two attempts of a task compute rows, it may return those of the attempt that the job did not see.
 */
public class KeptRows extends RDD {
  private static final ClassTag ROWS = ClassTag$.MODULE$.apply(InternalRow.class);

  private final Filled filled;
  private final CollectionAccumulator seen; // in the first job: partitions and attempts
  private HashSet attempts; // whose rows count; null until the first job has ended

  private KeptRows(Filled filled, CollectionAccumulator seen) {
    super(filled, ROWS);
    this.filled = filled;
    this.seen = seen;
  }

  /** The rows, of which executors keep so many copies. `unpersist` of the RDD frees them. */
  public static Dataset of(SparkSession session, Dataset rows, int copies) throws ReflectiveOperationException {
    RDD source = rows.queryExecution().toRdd();
    Filled filled = new Filled(source);
    filled.persist(StorageLevel$.MODULE$.apply(true, true, false, true, copies));
    Object[] given = {new KeptRows(filled, source.sparkContext().collectionAccumulator()), rows, rows.isStreaming(), Boolean.FALSE};
    for (Method method : LogicalRDD$.class.getMethods()) {
      if (!method.getName().equals("fromDataset")) continue;
      Object plan = method.invoke(LogicalRDD$.MODULE$, Arrays.copyOf(given, method.getParameterTypes().length));
      return (Dataset) Dataset$.MODULE$.ofRows(session, (LogicalPlan) plan);
    }
    throw new NoSuchMethodException("LogicalRDD.fromDataset");
  }

  public Partition[] getPartitions() {
    return filled.partitions();
  }

  public scala.collection.Iterator compute(Partition split, TaskContext task) {
    scala.collection.Iterator rows = filled.iterator(split, task);
    Long attempt = Long.valueOf(((InternalRow) rows.next()).getLong(0));
    if (attempts == null) seen.add(new long[] {split.index(), attempt.longValue()});
    else if (!attempts.contains(attempt)) throw lost();
    return rows;
  }

  /** Spark calls this on the driver, when a job that reads these rows has ended. */
  public void doCheckpoint() {
    HashSet partitions = new HashSet(), found = new HashSet();
    for (Iterator all = ((List) seen.value()).iterator(); all.hasNext();) {
      long[] task = (long[]) all.next();
      partitions.add(Long.valueOf(task[0]));
      found.add(Long.valueOf(task[1]));
    }
    if (attempts != null || partitions.size() < getPartitions().length) return;
    attempts = found;
    filled.isWhole = true;
  }

  public RDD unpersist(boolean blocking) {
    filled.unpersist(blocking);
    return this;
  }

  private static RuntimeException lost() {
    return new IllegalStateException("dbio_commit.RowsLostError: no executor has rows any more that were kept");
  }

  /** What executors keep: in each partition, a row with the id of the task attempt, then the rows that it computed. */
  private static class Filled extends RDD {
    boolean isWhole; // then nothing is computed again

    Filled(RDD source) {
      super(source, ROWS);
    }

    public Partition[] getPartitions() {
      return firstParent(ROWS).partitions();
    }

    public scala.collection.Iterator compute(Partition split, TaskContext task) {
      if (isWhole) throw lost();
      return new Copies(firstParent(ROWS).iterator(split, task), task.taskAttemptId());
    }
  }

  private static class Copies extends AbstractIterator {
    private final scala.collection.Iterator rows;
    private UnsafeRow first;

    Copies(scala.collection.Iterator rows, long attempt) {
      this.rows = rows;
      first = UnsafeRow.createFromByteArray(16, 1);
      first.setLong(0, attempt);
    }

    public boolean hasNext() {
      return first != null || rows.hasNext();
    }

    public Object next() {
      if (first == null) return ((InternalRow) rows.next()).copy();
      UnsafeRow found = first;
      first = null;
      return found;
    }
  }
}
