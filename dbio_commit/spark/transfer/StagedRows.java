package dbio_commit;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** Some rows, stored one after the other, that can be read column by column. Few enough to stay in the processor's cache. */
public class StagedRows {
  public static final int MOST_ROWS = 1024;
  private static final int FULL_BYTES = 1024 * 1024; // a single row may have more

  private final ColumnVector[] columns;
  private final ColumnarBatch batch;
  private final long[] anyNull; // a bit for each column, set if it has nulls
  private byte[] rows = new byte[16 * 1024];
  private final int[] starts = new int[MOST_ROWS];
  private int count;
  private int used;

  /** For columns that are not nested: all of these have a place of fixed width in a row. */
  public StagedRows(DataType[] types) {
    columns = new ColumnVector[types.length];
    for (int k = 0; k < types.length; k++) columns[k] = new Column(types[k], k, types.length);
    batch = new ColumnarBatch(columns);
    anyNull = new long[(types.length + 63) / 64];
  }

  /** Whether the row may be added. If not, call `clear` first. */
  public boolean hasRoomFor(UnsafeRow row) {
    return count == 0 || (count < MOST_ROWS && used + (long) row.getSizeInBytes() <= FULL_BYTES);
  }

  public void add(UnsafeRow row) {
    int size = row.getSizeInBytes();
    if (rows.length - used < size) rows = Arrays.copyOf(rows, (int) Math.max((long) used + size, Math.min(2L * rows.length, FULL_BYTES)));
    Object base = row.getBaseObject();
    if (base instanceof byte[]) { // nearly always, and faster
      System.arraycopy(base, (int) (row.getBaseOffset() - Platform.BYTE_ARRAY_OFFSET), rows, used, size);
    } else {
      Platform.copyMemory(base, row.getBaseOffset(), rows, Platform.BYTE_ARRAY_OFFSET + used, size);
    }
    for (int w = 0; w < anyNull.length; w++) anyNull[w] |= Platform.getLong(rows, Platform.BYTE_ARRAY_OFFSET + used + 8L * w);
    starts[count++] = used;
    used += size;
    batch.setNumRows(count);
  }

  public int count() {
    return count;
  }

  /** Returns the same object each time. */
  public InternalRow row(int row) {
    return batch.getRow(row);
  }

  public int fields() {
    return columns.length;
  }

  public ColumnVector column(int k) {
    return columns[k];
  }

  public void clear() {
    count = used = 0;
    Arrays.fill(anyNull, 0L);
    if (rows.length > FULL_BYTES) rows = new byte[16 * 1024];
  }

  /** A column of the rows. */
  class Column extends ColumnVector {
    private final int bit;
    private final int word; // which of the words with the bits for nulls, at the begin of a row
    private final long place; // in a row, plus the offset of the bytes in a Java array

    Column(DataType type, int k, int fields) {
      super(type);
      bit = k % 64;
      word = k / 64;
      place = Platform.BYTE_ARRAY_OFFSET + 8L * ((fields + 63) / 64) + 8L * k;
    }

    public boolean hasNull() {
      return (anyNull[word] >> bit & 1) != 0;
    }

    public boolean isNullAt(int row) {
      return (Platform.getLong(rows, Platform.BYTE_ARRAY_OFFSET + starts[row] + 8L * word) >> bit & 1) != 0;
    }

    public int numNulls() {
      int found = 0;
      for (int row = 0; row < count; row++) if (isNullAt(row)) found++;
      return found;
    }

    public boolean getBoolean(int row) {
      return Platform.getBoolean(rows, place + starts[row]);
    }

    public byte getByte(int row) {
      return Platform.getByte(rows, place + starts[row]);
    }

    public short getShort(int row) {
      return Platform.getShort(rows, place + starts[row]);
    }

    public int getInt(int row) {
      return Platform.getInt(rows, place + starts[row]);
    }

    public long getLong(int row) {
      return Platform.getLong(rows, place + starts[row]);
    }

    public float getFloat(int row) {
      return Platform.getFloat(rows, place + starts[row]);
    }

    public double getDouble(int row) {
      return Platform.getDouble(rows, place + starts[row]);
    }

    public UTF8String getUTF8String(int row) {
      if (isNullAt(row)) return null;
      return UTF8String.fromAddress(rows, addressOf(row), lengthOf(row));
    }

    public byte[] getBinary(int row) {
      UTF8String bytes = getUTF8String(row);
      return bytes == null ? null : bytes.getBytes();
    }

    public Decimal getDecimal(int row, int precision, int scale) {
      if (isNullAt(row)) return null;
      if (precision <= Decimal.MAX_LONG_DIGITS()) return Decimal.createUnsafe(getLong(row), precision, scale);
      return Decimal.apply(new java.math.BigDecimal(new java.math.BigInteger(getBinary(row)), scale), precision, scale);
    }

    /** Copies the values of these rows that are not null. Much faster than a call for each value. */
    public void copyLongs(int[] chosen, int from, int end, byte[] to, long at) {
      byte[] own = rows;
      int[] begins = starts;
      boolean hasNull = hasNull();
      for (int i = from; i < end; i++, at += 8) {
        int row = chosen[i];
        if (!hasNull || !isNullAt(row)) Platform.putLong(to, at, Platform.getLong(own, place + begins[row]));
      }
    }

    public void copyInts(int[] chosen, int from, int end, byte[] to, long at) {
      byte[] own = rows;
      int[] begins = starts;
      boolean hasNull = hasNull();
      for (int i = from; i < end; i++, at += 4) {
        int row = chosen[i];
        if (!hasNull || !isNullAt(row)) Platform.putInt(to, at, Platform.getInt(own, place + begins[row]));
      }
    }

    public byte[] bytes() {
      return rows;
    }

    /** The address of a text in `bytes`. A row has a text's offset in the upper half of a word, its length in the lower. */
    public long addressOf(int row) {
      return Platform.BYTE_ARRAY_OFFSET + starts[row] + (getLong(row) >>> 32);
    }

    public int lengthOf(int row) {
      return (int) getLong(row);
    }

    public ColumnarArray getArray(int row) {
      throw new UnsupportedOperationException();
    }

    public ColumnarMap getMap(int row) {
      throw new UnsupportedOperationException();
    }

    public ColumnVector getChild(int ordinal) {
      throw new UnsupportedOperationException();
    }

    public void close() {
    }
  }
}
