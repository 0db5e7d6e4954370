package dbio_commit;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.vectorized.ColumnVector;

/** Rows to be packed, as columns. If a column has more rows (`hasMore`), `chosen` has the places of these in it. */
abstract class InputRows {
  int count;
  final ColumnVector[] columns;
  final boolean[] hasMore;
  int[] chosen;

  InputRows(int fields) {
    columns = new ColumnVector[fields];
    hasMore = new boolean[fields];
  }

  /** The place of the row in the column. */
  final int place(int k, int row) {
    return hasMore[k] ? chosen[row] : row;
  }

  /** The columns by which rows are grouped. Each call returns the same object, with the values of this row. */
  abstract UnsafeRow key(int row);
}
