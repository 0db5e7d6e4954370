package dbio_commit;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;

/** A stream into a table: each batch is one write in Python, which the table commits once. `WriteBatch` runs a batch. */
public class StreamWrite implements StreamingWrite {
  private final SqlTable table;
  private final LogicalWriteInfo info;
  private final boolean isComplete;

  StreamWrite(SqlTable table, LogicalWriteInfo info, boolean isComplete) {
    this.table = table;
    this.info = info;
    this.isComplete = isComplete;
  }

  public void commit(long batch, WriterCommitMessage[] messages) {
    Rows rows = (Rows) messages[0];
    Questions.writeBatch(rows.session, table.token, rows.rows, info.queryId(), batch, isComplete, info.options());
  }

  public void abort(long batch, WriterCommitMessage[] messages) {}

  public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
    throw new IllegalStateException("Statements has not planned this stream");
  }

  static class Rows implements WriterCommitMessage {
    final SparkSession session;
    final Dataset rows;

    Rows(SparkSession session, Dataset rows) {
      this.session = session;
      this.rows = rows;
    }
  }
}
