package dbio_commit;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.v2.V2CommandExec;
import org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/** Writes one batch of a stream. Its rows come from the plan of the stream, which also keeps the state of the query. */
public class WriteBatch extends V2CommandExec {
  private final LogicalPlan write;
  private final SparkPlan rows;

  public WriteBatch(LogicalPlan write, SparkPlan rows) { // Spark copies it by the elements of the product
    this.write = write;
    this.rows = rows;
  }

  public Seq output() { return (Seq) Nil$.MODULE$; }
  public Seq children() { return (Seq) ArraySeq$.MODULE$.unsafeWrapArray(new Object[] {rows}); }
  public TreeNode withNewChildrenInternal(IndexedSeq changed) { return new WriteBatch(write, (SparkPlan) changed.apply(0)); }
  public int productArity() { return 2; }
  public Object productElement(int i) { return i == 0 ? (Object) write : rows; }
  public boolean canEqual(Object other) { return other instanceof WriteBatch; }
  public String nodeName() { return "DbioWriteBatch"; }

  public Seq run() {
    SparkSession session = (SparkSession) session();
    Dataset found = (Dataset) session.internalCreateDataFrame(rows.execute(), rows.schema(), false);
    WriteToDataSourceV2 write = (WriteToDataSourceV2) this.write;
    write.batchWrite().commit(new WriterCommitMessage[] {new StreamWrite.Rows(session, found)}); // it knows the batch
    return (Seq) Nil$.MODULE$;
  }
}
