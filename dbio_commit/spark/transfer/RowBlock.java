package dbio_commit;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.util.Arrays;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** Rows that will become a value or a part of one, stored column by column. The arrays grow fourfold. */
final class RowBlock {
  private static final int FIRST_BYTES = 4 * 1024;

  final BlockLayout layout;
  private final int first; // rows of the first arrays
  byte[] values = new byte[0]; // columns of `capacity` rows, one behind the other; zero where a value is null
  final byte[][] nulls; // by column, a byte for each row that is 1 for null; null if the column has no nulls
  final byte[][] texts; // by column
  int capacity;
  int count;
  long bytes; // of its rows
  long held; // memory that was taken from Spark for it
  long place = -1; // in the file that it was spilled to; -1 if it is in memory
  private int[] written; // by column, the bytes of texts that were spilled
  boolean completes; // no rows of its group follow; set when the block leaves
  boolean alone; // it is the only block of its group when it leaves, so it may share a value with others

  // While rows are added:
  int number = -1; // among the blocks that get rows; -1 if this one gets none
  int before; // the rows that it had
  int next; // the end of its rows in the order of rows

  /** Makes the first arrays for so many rows; if that is 0, for a few. */
  RowBlock(BlockLayout layout, int rows) {
    this.layout = layout;
    first = Math.max(8, (rows > 0 ? rows : Math.min(32, FIRST_BYTES / layout.rowBytes)) & ~7);
    nulls = new byte[layout.widths.length][];
    texts = new byte[layout.widths.length][];
  }

  // --- room ---

  /** Whether a row of this size must go to another block, as this one would have more than `most` bytes. */
  boolean isFull(long size, long most) {
    return count == layout.mostRows || (count > 0 && bytes + size > most);
  }

  /** Whether a value that begins with this block, and has so many rows and bytes, may also have the other block. */
  boolean hasRoomFor(RowBlock other, int rows, long bytes, long most) {
    return alone && other.alone && layout == other.layout && rows + other.count <= BlockLayout.MOST_ROWS
        && bytes + other.bytes <= most;
  }

  private int wanted() {
    if (count < capacity) return capacity;
    return Math.min(layout.mostRows, Math.max(first, 4 * capacity));
  }

  /** The most bytes by which its arrays grow for one more row: each column may get nulls, and texts grow twofold. */
  long lacks(long size) {
    return (long) (wanted() - capacity) * (layout.rowBytes + nulls.length) + 2 * (size - layout.rowBytes);
  }

  /** Makes room for one more row. */
  void place(long size) {
    if (count == capacity) grow();
    bytes += size;
    count++;
  }

  private void grow() {
    int wanted = wanted();
    byte[] grown = new byte[wanted * layout.rowBytes];
    for (int k = 0; k < nulls.length; k++) {
      System.arraycopy(values, layout.before[k] * capacity, grown, layout.before[k] * wanted, layout.widths[k] * count);
      if (nulls[k] != null) nulls[k] = Arrays.copyOf(nulls[k], wanted);
    }
    values = grown;
    capacity = wanted;
  }

  void clear() {
    count = 0;
    bytes = 0;
    Arrays.fill(values, (byte) 0);
    Arrays.fill(nulls, null);
  }

  // --- values ---

  /** The position in `values` of the row's value of the column. */
  int at(int k, int row) {
    return layout.before[k] * capacity + layout.widths[k] * row;
  }

  long addressOf(int k, int row) {
    return Platform.BYTE_ARRAY_OFFSET + (long) at(k, row);
  }

  void setNull(int k, int row) {
    if (nulls[k] == null) nulls[k] = new byte[capacity];
    nulls[k][row] = 1;
  }

  int nullsOf(int k) {
    int found = 0;
    if (nulls[k] != null) for (int row = 0; row < count; row++) found += nulls[k][row];
    return found;
  }

  /** The end of the column's texts before the row. */
  int endBefore(int k, int row) {
    return row == 0 ? 0 : Platform.getInt(values, addressOf(k, row - 1));
  }

  void setText(int k, int row, UTF8String text) {
    int end = endBefore(k, row);
    if (text != null) {
      int length = text.numBytes();
      byte[] all = texts[k];
      if (all == null || all.length - end < length) {
        long wanted = Math.max((long) end + length, all == null ? 64L : Math.min(2L * all.length, PackedBytes.LARGEST));
        if (wanted > PackedBytes.LARGEST) throw PackedBytes.tooLarge(wanted);
        texts[k] = all == null ? new byte[(int) wanted] : Arrays.copyOf(all, (int) wanted);
      }
      if (text.getBaseObject() instanceof byte[]) { // nearly always, and faster
        int begin = (int) (text.getBaseOffset() - Platform.BYTE_ARRAY_OFFSET);
        System.arraycopy(text.getBaseObject(), begin, texts[k], end, length);
      } else {
        text.writeToMemory(texts[k], Platform.BYTE_ARRAY_OFFSET + end);
      }
      end += length;
    }
    Platform.putInt(values, addressOf(k, row), end);
  }

  // --- spilling ---

  /** Writes the arrays to the end of the file, and drops them. */
  void write(RandomAccessFile file) throws IOException {
    long end = file.length();
    file.seek(end);
    file.write(values);
    int[] textBytes = new int[texts.length];
    for (int k = 0; k < texts.length; k++) {
      if (nulls[k] != null) file.write(nulls[k]);
      if (texts[k] == null) continue;
      textBytes[k] = endBefore(k, count);
      file.write(texts[k], 0, textBytes[k]);
    }
    place = end; // last: if a write fails, the block is still in memory
    written = textBytes;
    values = new byte[0];
    for (int k = 0; k < texts.length; k++) {
      if (nulls[k] != null) nulls[k] = values;
      if (texts[k] != null) texts[k] = values;
    }
  }

  void read(RandomAccessFile file) throws IOException {
    file.seek(place);
    values = read(file, capacity * layout.rowBytes);
    for (int k = 0; k < texts.length; k++) {
      if (nulls[k] != null) nulls[k] = read(file, capacity);
      if (texts[k] != null) texts[k] = read(file, written[k]);
    }
    place = -1;
  }

  private static byte[] read(RandomAccessFile file, int length) throws IOException {
    byte[] found = new byte[length];
    file.readFully(found);
    return found;
  }
}
