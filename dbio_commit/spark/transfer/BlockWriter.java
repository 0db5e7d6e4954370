package dbio_commit;

import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** Copies the values of rows to the blocks of the rows, column by column. */
final class BlockWriter {
  private final PackedSchema schema;
  private final InputTexts texts;

  BlockWriter(PackedSchema schema, InputTexts texts) {
    this.schema = schema;
    this.texts = texts;
  }

  /** Copies the values of a column. */
  void write(int k, InputRows rows, Placement placement) {
    ColumnVector column = rows.columns[k];
    int[] at = rows.hasMore[k] ? placement.chosen : placement.order;
    int from = 0;
    for (int b = 0; b < placement.blockCount; b++) {
      RowBlock block = placement.blocks[b];
      if (column.hasNull()) {
        for (int i = from; i < block.next; i++) if (column.isNullAt(at[i])) block.setNull(k, block.before + i - from);
      }
      if (schema.isText(k)) {
        writeTexts(k, placement.order, from, block);
      } else {
        write(k, column, at, from, block);
      }
      from = block.next;
    }
  }

  // In all methods below, `at` has the places of rows in the column. The rows of the block are `from` to `block.next`.

  private void writeTexts(int k, int[] order, int from, RowBlock block) {
    if (block.layout.coded[k]) {
      byte[] codes = texts.code[k];
      int to = block.at(k, block.before);
      for (int i = from; i < block.next; i++) block.values[to++] = codes[order[i]];
    } else {
      UTF8String[] own = texts.texts[k];
      int row = block.before;
      for (int i = from; i < block.next; i++) block.setText(k, row++, own[order[i]]);
    }
  }

  private void write(int k, ColumnVector column, int[] at, int from, RowBlock block) {
    switch (schema.kinds.charAt(k)) {
      case 'i':
        if (schema.types[k] instanceof FloatType) writeWords(k, column, at, from, block);
        else writeInts(k, column, at, from, block);
        break;
      case 'l':
        if (schema.isLong(k, column)) writeLongs(k, column, at, from, block);
        else writeWords(k, column, at, from, block);
        break;
      case 'd':
        writeDecimals(k, column, at, from, block);
        break;
      default:
        writeWords(k, column, at, from, block);
    }
  }

  // Ints and longs are the most frequent kinds. They have loops without a branch on the kind of each value.

  private static void writeInts(int k, ColumnVector column, int[] at, int from, RowBlock block) {
    boolean hasNull = column.hasNull();
    byte[] values = block.values;
    long to = block.addressOf(k, block.before);
    if (column instanceof StagedRows.Column) {
      ((StagedRows.Column) column).copyInts(at, from, block.next, values, to);
      return;
    }
    for (int i = from, end = block.next; i < end; i++, to += 4) {
      if (!hasNull || !column.isNullAt(at[i])) Platform.putInt(values, to, column.getInt(at[i]));
    }
  }

  private static void writeLongs(int k, ColumnVector column, int[] at, int from, RowBlock block) {
    boolean hasNull = column.hasNull();
    byte[] values = block.values;
    long to = block.addressOf(k, block.before);
    if (column instanceof StagedRows.Column) {
      ((StagedRows.Column) column).copyLongs(at, from, block.next, values, to);
      return;
    }
    for (int i = from, end = block.next; i < end; i++, to += 8) {
      if (!hasNull || !column.isNullAt(at[i])) Platform.putLong(values, to, column.getLong(at[i]));
    }
  }

  private void writeWords(int k, ColumnVector column, int[] at, int from, RowBlock block) {
    boolean hasNull = column.hasNull();
    char kind = schema.kinds.charAt(k);
    DataType type = schema.types[k];
    int width = block.layout.widths[k];
    long to = block.addressOf(k, block.before);
    for (int i = from; i < block.next; i++, to += width) {
      if (hasNull && column.isNullAt(at[i])) continue;
      long word = PackedSchema.wordOf(column, at[i], kind, type);
      switch (width) {
        case 1: Platform.putByte(block.values, to, (byte) word); break;
        case 2: Platform.putShort(block.values, to, (short) word); break;
        case 4: Platform.putInt(block.values, to, (int) word); break;
        default: Platform.putLong(block.values, to, word);
      }
    }
  }

  /** The unscaled numbers in 16 bytes, the lowest first. The column has their bytes with the highest first. */
  private void writeDecimals(int k, ColumnVector column, int[] at, int from, RowBlock block) {
    DecimalType type = (DecimalType) schema.types[k];
    boolean hasNull = column.hasNull();
    boolean hasBytes = column instanceof StagedRows.Column || column instanceof WritableColumnVector;
    int to = block.at(k, block.before);
    for (int i = from; i < block.next; i++, to += 16) {
      if (hasNull && column.isNullAt(at[i])) continue;
      byte[] digits = hasBytes ? column.getBinary(at[i]) : bytesOf(column.getDecimal(at[i], type.precision(), type.scale()));
      byte sign = digits.length > 0 && digits[0] < 0 ? (byte) -1 : (byte) 0;
      for (int b = 0; b < 16; b++) {
        block.values[to + b] = b < digits.length ? digits[digits.length - 1 - b] : sign;
      }
    }
  }

  private static byte[] bytesOf(Decimal decimal) {
    return decimal.toJavaBigDecimal().unscaledValue().toByteArray();
  }
}
