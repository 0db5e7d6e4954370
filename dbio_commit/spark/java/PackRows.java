package dbio_commit;

import java.io.Serializable;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Generator;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import scala.collection.AbstractIterator;
import scala.collection.IterableOnce;
import scala.collection.Iterator$;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.collection.immutable.$colon$colon;

/**
 * A generator, as `explode` is one: takes all rows of a task, and gives a few values that hold them column by column,
 * in the form of which `packed.py` tells. Behind each come so many nulls as it weighs, so that a bound on the rows of a
 * batch bounds its bytes.
 *
 * In the Java that Janino compiles: no lambdas, and what comes out of a collection is cast.
 */
public class PackRows extends Expression implements Generator, Serializable {
  /** Of the form of the values, and of the constructor; `packed.py` has the same. */
  public static final String VERSION = "1";

  private static final int MOST_ROWS = 64 * 1024;
  private static final int FEW_BYTES = 64 * 1024;

  private final Seq<Expression> columns;
  private final String kinds;
  private final int valueBytes;
  private final int nullBytes;
  private Seq patterns = new $colon$colon(TreePattern.GENERATOR(), Nil$.MODULE$);

  // Of the task that runs here, which has a copy of its own.
  private transient UnsafeProjection projection;
  private transient boolean projected;
  private transient byte[] rows;
  private transient int[] starts;
  private transient int count;
  private transient int used;

  /** `kinds` has a letter for each column; a value ends at about so many bytes, and a null stands for so many. */
  public PackRows(Seq<Expression> columns, String kinds, int valueBytes, int nullBytes) {
    this.columns = columns;
    this.kinds = kinds;
    this.valueBytes = valueBytes;
    this.nullBytes = nullBytes;
  }

  // --- what Catalyst asks of an expression ---

  public Seq children() {
    return columns;
  }

  public TreeNode withNewChildrenInternal(IndexedSeq changed) {
    return new PackRows(changed, kinds, valueBytes, nullBytes);
  }

  public Seq nodePatterns() {
    return patterns;
  }

  public void org$apache$spark$sql$catalyst$expressions$Generator$_setter_$nodePatterns_$eq(Seq found) {
    patterns = found;
  }

  public StructType elementSchema() {
    return new StructType().add("packed", DataTypes.BinaryType, true);
  }

  public DataType dataType() {
    return new ArrayType(elementSchema(), true);
  }

  public boolean nullable() {
    return false;
  }

  public boolean foldable() {
    return false;
  }

  public boolean supportCodegen() {
    return false;
  }

  public ExprCode doGenCode(CodegenContext context, ExprCode code) {
    throw new UnsupportedOperationException("pack_rows is a generator, and runs as it is");
  }

  public String prettyName() {
    return "pack_rows";
  }

  public int productArity() {
    return 4;
  }

  public Object productElement(int position) {
    switch (position) {
      case 0: return columns;
      case 1: return kinds;
      case 2: return Integer.valueOf(valueBytes);
      default: return Integer.valueOf(nullBytes);
    }
  }

  public boolean canEqual(Object other) {
    return other instanceof PackRows;
  }

  // --- rows in ---

  public IterableOnce eval(InternalRow row) {
    if (rows == null) prepare();
    UnsafeRow whole = inOnePiece(row);
    int size = whole.getSizeInBytes();
    boolean full = count == MOST_ROWS || (count > 0 && used + (long) size > valueBytes);
    IterableOnce packed = full ? pack() : Iterator$.MODULE$.empty();
    if (rows.length - used < size) {
      rows = Arrays.copyOf(rows, Math.max(Math.min(2 * rows.length, valueBytes), used + size));
    }
    if (starts.length == count) starts = Arrays.copyOf(starts, 2 * count);
    Platform.copyMemory(whole.getBaseObject(), whole.getBaseOffset(), rows, Platform.BYTE_ARRAY_OFFSET + used, size);
    starts[count++] = used;
    used += size;
    return packed;
  }

  public IterableOnce terminate() {
    return count > 0 ? pack() : Iterator$.MODULE$.empty();
  }

  private void prepare() {
    forget();
    for (int i = 0; i < columns.size(); i++) {
      Expression column = (Expression) columns.apply(i);
      projected |= !(column instanceof BoundReference) || ((BoundReference) column).ordinal() != i;
    }
  }

  private void forget() {
    if (rows == null || rows.length > valueBytes) rows = new byte[FEW_BYTES];
    if (starts == null) starts = new int[1024];
    count = used = 0;
  }

  /** As Spark's operators hand rows on, with our columns, unless its optimizer has put others in their place. */
  private UnsafeRow inOnePiece(InternalRow row) {
    if (!projected && row instanceof UnsafeRow && row.numFields() == kinds.length()) return (UnsafeRow) row;
    if (projection == null) projection = UnsafeProjection$.MODULE$.create(columns);
    return projection.apply(row);
  }

  // --- columns out ---

  private IterableOnce pack() {
    int fields = kinds.length();
    int[] nulls = clearNulls();
    long size = 8L + 8L * fields;
    for (int k = 0; k < fields; k++) size += (nulls[k] > 0 ? bitmap() : 0) + sizeOf(k);
    if (size > Integer.MAX_VALUE - 64) {
      throw new IllegalStateException(
          "a row of " + size + " bytes is too large for an array of Java's: split its values");
    }
    byte[] out = new byte[(int) size + 8]; // texts are put there by words
    int at = 8 + 8 * fields;
    putInt(out, 0, count);
    for (int k = 0; k < fields; k++) {
      if (nulls[k] > 0) {
        packNulls(k, out, at);
        at += bitmap();
      }
      at += packValues(k, out, at);
      putInt(out, 8 + 8 * k, nulls[k]);
      putInt(out, 12 + 8 * k, at);
    }
    forget();
    return new Packed(out, out.length / nullBytes);
  }

  /** How many each column has. What some operator has left in their places becomes zero, and so of no length. */
  private int[] clearNulls() {
    int fields = kinds.length();
    long[] any = new long[(fields + 63) / 64];
    for (int i = 0; i < count; i++) {
      for (int w = 0; w < any.length; w++) any[w] |= nullWord(w, i);
    }
    int[] found = new int[fields];
    for (int k = 0; k < fields; k++) {
      if ((any[k / 64] >> (k % 64) & 1) == 0) continue;
      for (int i = 0; i < count; i++) {
        if (!isNull(k, i)) continue;
        Platform.putLong(rows, place(k) + starts[i], 0L);
        found[k]++;
      }
    }
    return found;
  }

  private boolean isNull(int k, int i) {
    return (nullWord(k / 64, i) >> (k % 64) & 1) != 0;
  }

  /** A row begins with a bit for each column that is null. */
  private long nullWord(int word, int i) {
    return Platform.getLong(rows, Platform.BYTE_ARRAY_OFFSET + starts[i] + 8L * word);
  }

  /** Where a row has the column, from its start on. */
  private long place(int k) {
    return Platform.BYTE_ARRAY_OFFSET + 8L * ((kinds.length() + 63) / 64) + 8L * k;
  }

  private int bitmap() {
    return padded((count + 7) / 8);
  }

  /** The bytes of a column's values, in whole words. */
  private long sizeOf(int k) {
    switch (kinds.charAt(k)) {
      case 'z': return bitmap();
      case 'b': return padded(count);
      case 's': return padded(2 * count);
      case 'i': return padded(4 * count);
      case 'l': return 8L * count;
      case 'd': return 16L * count;
      case 'v': return padded(4 * (count + 1)) + (textBytes(place(k)) + 7) / 8 * 8;
      default: throw new IllegalArgumentException("no kind of columns: " + kinds.charAt(k));
    }
  }

  private long textBytes(long from) {
    long all = 0;
    for (int i = 0; i < count; i++) all += (int) Platform.getLong(rows, from + starts[i]);
    return all;
  }

  /** The bytes that it has put there. */
  private int packValues(int k, byte[] out, int at) {
    long from = place(k), to = Platform.BYTE_ARRAY_OFFSET + at;
    switch (kinds.charAt(k)) {
      case 'z': packBits(from, out, at); return bitmap();
      case 'b': packBytes(from, out, at); return padded(count);
      case 's': packShorts(from, out, to); return padded(2 * count);
      case 'i': packInts(from, out, to); return padded(4 * count);
      case 'l': packLongs(from, out, to); return 8 * count;
      case 'd': packDecimals(from, out, at); return 16 * count;
      default: return packTexts(from, out, to);
    }
  }

  private void packNulls(int k, byte[] out, int at) {
    for (int i = 0; i < count; i++) {
      if (!isNull(k, i)) out[at + (i >> 3)] |= 1 << (i & 7);
    }
  }

  private void packBits(long from, byte[] out, int at) {
    for (int i = 0; i < count; i++) {
      if (Platform.getByte(rows, from + starts[i]) != 0) out[at + (i >> 3)] |= 1 << (i & 7);
    }
  }

  private void packBytes(long from, byte[] out, int at) {
    for (int i = 0; i < count; i++) out[at + i] = Platform.getByte(rows, from + starts[i]);
  }

  private void packShorts(long from, byte[] out, long to) {
    for (int i = 0; i < count; i++) Platform.putShort(out, to + 2L * i, Platform.getShort(rows, from + starts[i]));
  }

  private void packInts(long from, byte[] out, long to) {
    for (int i = 0; i < count; i++) Platform.putInt(out, to + 4L * i, Platform.getInt(rows, from + starts[i]));
  }

  private void packLongs(long from, byte[] out, long to) {
    for (int i = 0; i < count; i++) Platform.putLong(out, to + 8L * i, Platform.getLong(rows, from + starts[i]));
  }

  /** Rows have the bytes of the whole number, highest first, and no more of them than it needs. */
  private void packDecimals(long from, byte[] out, int at) {
    for (int i = 0; i < count; i++) {
      long word = Platform.getLong(rows, from + starts[i]);
      int length = (int) word, first = starts[i] + (int) (word >>> 32), to = at + 16 * i;
      if (length == 0) continue; // null
      byte sign = rows[first] < 0 ? (byte) -1 : (byte) 0;
      for (int b = 0; b < 16; b++) out[to + b] = b < length ? rows[first + length - 1 - b] : sign;
    }
  }

  private int packTexts(long from, byte[] out, long to) {
    int end = 0, ends = padded(4 * (count + 1));
    long data = to + ends;
    for (int i = 0; i < count; i++) {
      long word = Platform.getLong(rows, from + starts[i]);
      int length = (int) word;
      long text = Platform.BYTE_ARRAY_OFFSET + starts[i] + (word >>> 32);
      Platform.putInt(out, to + 4L * i, end);
      if (length <= 64) { // by words, for which there is room in rows and behind them
        for (int b = 0; b < length; b += 8) Platform.putLong(out, data + end + b, Platform.getLong(rows, text + b));
      } else {
        Platform.copyMemory(rows, text, out, data + end, length);
      }
      end += length;
    }
    Platform.putInt(out, to + 4L * count, end);
    Platform.putLong(out, data + end, 0L); // what the last word may have brought along
    return ends + padded(end);
  }

  private static void putInt(byte[] out, int at, int value) {
    Platform.putInt(out, Platform.BYTE_ARRAY_OFFSET + at, value);
  }

  private static int padded(int bytes) {
    return (bytes + 7) & ~7;
  }

  /** A value, and as many nulls. */
  private static class Packed extends AbstractIterator {
    private byte[] value;
    private int nulls;

    Packed(byte[] value, int nulls) {
      this.value = value;
      this.nulls = nulls;
    }

    public boolean hasNext() {
      return value != null || nulls > 0;
    }

    public Object next() {
      if (value == null) nulls--;
      Object row = new GenericInternalRow(new Object[] {value});
      value = null;
      return row;
    }
  }
}
