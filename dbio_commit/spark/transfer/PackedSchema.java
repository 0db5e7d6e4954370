package dbio_commit;

import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.vectorized.ColumnVector;

/**
 * The columns of the rows that are packed. `kinds` has a letter for each column, which `packed.py` assigns: `t` and `v`
 * are texts and binaries, `t` if they may come as codes; `d` is a decimal of 16 bytes; the others are at most 8 bytes wide.
 */
final class PackedSchema {
  final String kinds;
  final DataType[] types;
  final int fields;

  PackedSchema(String kinds, DataType[] types) {
    this.kinds = kinds;
    this.types = types;
    fields = types.length;
  }

  boolean isText(int k) {
    return kinds.charAt(k) == 'v' || kinds.charAt(k) == 't';
  }

  boolean isBinary(int k) {
    return types[k] instanceof BinaryType;
  }

  /** Whether a value of the column is at most 8 bytes wide, so that `wordOf` has it. */
  boolean isWord(int k) {
    return "zbsil".indexOf(kinds.charAt(k)) >= 0;
  }

  /** Whether the vector gives values of a column of the kind `l` as longs, without a conversion. */
  boolean isLong(int k, ColumnVector column) {
    if (types[k] instanceof DoubleType) return false;
    if (!(types[k] instanceof DecimalType) || column instanceof StagedRows.Column) return true;
    return column instanceof WritableColumnVector && ((DecimalType) types[k]).precision() > 9;
  }

  /** The bits of a value that is not null, as a long. */
  static long wordOf(ColumnVector column, int place, char kind, DataType type) {
    switch (kind) {
      case 'z': return column.getBoolean(place) ? 1L : 0L;
      case 'b': return column.getByte(place);
      case 's': return column.getShort(place);
      case 'i': return type instanceof FloatType ? Float.floatToRawIntBits(column.getFloat(place)) : column.getInt(place);
      default:
        if (type instanceof DoubleType) return Double.doubleToRawLongBits(column.getDouble(place));
        return type instanceof DecimalType ? unscaled(column, place, (DecimalType) type) : column.getLong(place);
    }
  }

  private static long unscaled(ColumnVector column, int place, DecimalType type) {
    if (column instanceof StagedRows.Column) return column.getLong(place);
    if (column instanceof WritableColumnVector) return type.precision() <= 9 ? column.getInt(place) : column.getLong(place);
    return column.getDecimal(place, type.precision(), type.scale()).toUnscaledLong();
  }
}
