package dbio_commit;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskContext;
import org.apache.spark.memory.MemoryConsumer;
import org.apache.spark.memory.MemoryMode;
import org.apache.spark.memory.TaskMemoryManager;
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
import org.apache.spark.util.TaskCompletionListener;
import org.apache.spark.util.Utils$;
import scala.collection.AbstractIterator;
import scala.collection.IterableOnce;
import scala.collection.Iterator$;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.collection.immutable.$colon$colon;

/**
 * A generator, as `explode` is one: takes all rows of a task, and gives a few values that hold them column by column,
 * in the form of which `packed.py` tells. Behind each come so many nulls as it weighs, so that a bound on the rows of a
 * batch bounds its bytes.
 *
 * It may put rows together that are equal in some columns. Then it holds them back, in as much memory as Spark lets it
 * have, and a value holds rows of one group, or all of some small ones. Where memory is too little for that, rows come
 * as they are.
 *
 * In the Java that Janino compiles: no lambdas, and what comes out of a collection is cast.
 */
public class PackRows extends Expression implements Generator, Serializable {
  /** Of the form of the values, and of the constructor; `packed.py` has the same. */
  public static final String VERSION = "3";

  private static final int MOST_ROWS = 64 * 1024;
  // A block grows fourfold, from the first of these to the second. Java's collector does not copy arrays of half a region
  // of its heap and more, and gives them whole regions, of a megabyte or more, in which their heads need room, too.
  private static final int FIRST_BYTES = 4 * 1024 - 16;
  private static final int BLOCK_BYTES = FIRST_BYTES << 10;
  // A group with so many bytes or rows has a row group for Python, which counts fewer bytes for a row.
  private static final int GROUP_BYTES = 128 * 1024 * 1024;
  private static final int GROUP_ROWS = 256 * 1024;
  private static final long STEP = 4L * 1024 * 1024; // by which memory is asked for
  private static final int WORTH_BYTES = 128 * 1024; // of the largest group: below, values would be too small to pay

  private final Seq<Expression> columns;
  private final String kinds;
  private final String together;
  private final int valueBytes;
  private final int nullBytes;
  private Seq patterns = new $colon$colon(TreePattern.GENERATOR(), Nil$.MODULE$);

  // Of the task that runs here, which has a copy of its own.
  private transient UnsafeProjection projection;
  private transient boolean projected;
  private transient Block loose; // the rows that are in no group
  private transient LinkedHashMap groups; // by their keys; null where there are none
  private transient UnsafeProjection keys;
  private transient Group[] lately; // by a few bits of their keys
  private transient int single; // the only column of the keys, where it is but a word in a row; else -1
  private transient long singleMask; // of the bytes that it has there
  private transient Memory memory;

  // What is packed just now.
  private transient byte[] rows;
  private transient int[] starts;
  private transient int count;
  private transient long[] texts; // the bytes of each column's, all together
  private transient Codes[] codes; // of columns whose texts repeat, as far as they have been looked at

  /**
   * `kinds` has a letter for each column, a `t` for texts that may come as codes; and `together` a `g` for those in which
   * rows of a group are equal, if any. A value ends at about so many bytes, and a null stands for so many.
   */
  public PackRows(Seq<Expression> columns, String kinds, String together, int valueBytes, int nullBytes) {
    this.columns = columns;
    this.kinds = kinds;
    this.together = together;
    this.valueBytes = valueBytes;
    this.nullBytes = nullBytes;
  }

  // --- what Catalyst asks of an expression ---

  public Seq children() {
    return columns;
  }

  public TreeNode withNewChildrenInternal(IndexedSeq changed) {
    return new PackRows(changed, kinds, together, valueBytes, nullBytes);
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
    return 5;
  }

  public Object productElement(int position) {
    switch (position) {
      case 0: return columns;
      case 1: return kinds;
      case 2: return together;
      case 3: return Integer.valueOf(valueBytes);
      default: return Integer.valueOf(nullBytes);
    }
  }

  public boolean canEqual(Object other) {
    return other instanceof PackRows;
  }

  // --- rows in ---

  public IterableOnce eval(InternalRow row) {
    if (loose == null) prepare();
    UnsafeRow whole = inOnePiece(row);
    int size = whole.getSizeInBytes();
    if (groups != null) {
      ArrayDeque left = addToGroup(whole, size);
      if (groups != null) return left == null ? none() : new Values(left);
      loose.add(whole, size, valueBytes); // the first that is in no group
      return new Values(left);
    }
    if (!loose.isFull(size, valueBytes)) {
      loose.add(whole, size, valueBytes);
      return none();
    }
    Values packed = new Values(pack(loose, 0, loose.count, false));
    loose.clear(valueBytes);
    loose.add(whole, size, valueBytes);
    return packed;
  }

  public IterableOnce terminate() {
    if (groups != null) return new Values(leaveAll(true));
    if (loose == null || loose.count == 0) return none();
    Values packed = new Values(pack(loose, 0, loose.count, false));
    loose.clear(valueBytes);
    return packed;
  }

  private static IterableOnce none() {
    return Iterator$.MODULE$.empty();
  }

  private void prepare() {
    loose = new Block();
    for (int i = 0; i < columns.size(); i++) {
      Expression column = (Expression) columns.apply(i);
      projected |= !(column instanceof BoundReference) || ((BoundReference) column).ordinal() != i;
    }
    TaskContext task = TaskContext.get();
    if (together.indexOf('g') < 0 || task == null) return;
    keys = UnsafeProjection$.MODULE$.create(keyColumns());
    int first = together.indexOf('g');
    singleMask = maskOf(kinds.charAt(first));
    single = singleMask != 0L && together.lastIndexOf('g') == first ? first : -1;
    groups = new LinkedHashMap();
    lately = new Group[1024];
    memory = new Memory(task.taskMemoryManager());
    task.addTaskCompletionListener(memory);
  }

  private static long maskOf(char kind) {
    switch (kind) {
      case 'z':
      case 'b': return 0xFFL;
      case 's': return 0xFFFFL;
      case 'i': return 0xFFFFFFFFL;
      case 'l': return -1L;
      default: return 0L;
    }
  }

  private Seq keyColumns() {
    Object[] found = new Object[together.length() - together.replace("g", "").length()];
    for (int i = 0, at = 0; i < together.length(); i++) {
      if (together.charAt(i) != 'g') continue;
      Expression column = (Expression) columns.apply(i);
      found[at++] = new BoundReference(i, column.dataType(), column.nullable());
    }
    return ArraySeq$.MODULE$.unsafeWrapArray(found);
  }

  /** As Spark's operators hand rows on, with our columns, unless its optimizer has put others in their place. */
  private UnsafeRow inOnePiece(InternalRow row) {
    if (!projected && row instanceof UnsafeRow && row.numFields() == kinds.length()) return (UnsafeRow) row;
    if (projection == null) projection = UnsafeProjection$.MODULE$.create(columns);
    return projection.apply(row);
  }

  // --- groups ---

  /**
   * What leaves, if anything. Where there is too little memory for groups, all of them do, and there are none after it:
   * then the row was not added.
   */
  private ArrayDeque addToGroup(UnsafeRow row, int size) {
    Group group = groupOf(row);
    if (size > BLOCK_BYTES) return passOn(group, row, size);
    ArrayDeque left = null; // as for nearly every row
    if (group.last != null && group.last.isFull(size, BLOCK_BYTES)) {
      if (group.bytes >= GROUP_BYTES || group.rows >= GROUP_ROWS) left = group.leave(); else group.last = null;
    }
    long lacking = (group.last == null ? Block.NONE : group.last).lacks(size, BLOCK_BYTES);
    if (lacking > 0 && !memory.take(lacking)) {
      if (left == null) left = new ArrayDeque();
      for (long leaving = 0; leaving < lacking;) {
        Group largest = largest();
        if (largest.bytes < WORTH_BYTES) {
          memory.release(lacking);
          left.addAll(leaveAll(false));
          return left;
        }
        leaving += largest.bytes;
        left.addAll(largest.leave());
      }
      if (group.last == null) { // it has left itself, or was to begin a block anyway
        memory.release(lacking);
        memory.take(Block.NONE.lacks(size, BLOCK_BYTES));
      }
    }
    if (group.last == null) group.begin();
    group.last.add(row, size, BLOCK_BYTES);
    group.bytes += size;
    group.rows++;
    return left;
  }

  /** A row that is too large to be held goes behind what there is of its group. */
  private ArrayDeque passOn(Group group, UnsafeRow row, int size) {
    ArrayDeque left = group.leave();
    Block block = new Block();
    block.add(row, size, BLOCK_BYTES);
    memory.take(block.allocated());
    left.add(block);
    return left;
  }

  private Group groupOf(UnsafeRow row) {
    UnsafeRow key = null;
    boolean isNull = false;
    long word; // of the key, or of its end
    if (single >= 0) {
      isNull = row.isNullAt(single);
      word = isNull ? 0L : row.getLong(single) & singleMask;
    } else {
      key = keys.apply(row);
      long end = key.getBaseOffset() + key.getSizeInBytes(); // before it are at least a word of nulls, and a value
      word = Platform.getLong(key.getBaseObject(), end - 8) + 31 * Platform.getLong(key.getBaseObject(), end - 16);
    }
    int bits = (int) (word * 0x9E3779B97F4A7C15L >>> 54);
    Group group = lately[bits];
    if (group != null && group.word == word && group.isNull == isNull && (key == null || group.key.equals(key))) {
      return group;
    }
    if (key == null) key = keys.apply(row);
    group = (Group) groups.get(key);
    if (group == null) {
      group = new Group(key.copy(), word, isNull);
      groups.put(group.key, group);
    }
    lately[bits] = group;
    return group;
  }

  private Group largest() {
    Group found = null;
    for (Iterator all = groups.values().iterator(); all.hasNext();) {
      Group group = (Group) all.next();
      if (found == null || group.bytes > found.bytes) found = group;
    }
    return found;
  }

  /** All blocks of all groups, of which there are none any more: each is complete, or rows of it may come yet. */
  private ArrayDeque leaveAll(boolean complete) {
    ArrayDeque left = new ArrayDeque();
    for (Iterator all = groups.values().iterator(); all.hasNext();) {
      ArrayDeque blocks = ((Group) all.next()).blocks;
      if (blocks.isEmpty()) continue;
      Block last = (Block) blocks.peekLast();
      last.completes = complete;
      last.alone = blocks.size() == 1;
      left.addAll(blocks);
    }
    groups = null;
    lately = null;
    return left;
  }

  /** Rows that are equal in some columns. */
  private static class Group {
    final UnsafeRow key;
    final long word; // of its key
    final boolean isNull; // the key, where it has but one column
    ArrayDeque blocks = new ArrayDeque();
    Block last; // to which rows are added, if any
    long bytes;
    long rows;

    Group(UnsafeRow key, long word, boolean isNull) {
      this.key = key;
      this.word = word;
      this.isNull = isNull;
    }

    void begin() {
      last = new Block();
      blocks.add(last);
    }

    ArrayDeque leave() {
      ArrayDeque left = blocks;
      blocks = new ArrayDeque();
      last = null;
      bytes = rows = 0;
      return left;
    }
  }

  /** Rows, each in one piece. */
  private static class Block {
    static final Block NONE = new Block();

    byte[] rows = new byte[0];
    int[] starts = new int[0];
    int count;
    int used;
    long place = -1; // of its rows in the file, if they are there
    boolean completes; // its group, which is told when it leaves
    boolean alone; // of its group when that leaves, so that it may share a value with others

    boolean isFull(int size, int most) {
      return count == MOST_ROWS || (count > 0 && used + (long) size > most);
    }

    /** The bytes that it must grow by for one row more. */
    long lacks(int size, int most) {
      return inHeap(wanted(size, most)) - inHeap(rows.length) + 4L * (wantedStarts(1) - starts.length);
    }

    private static long inHeap(int bytes) {
      return bytes < 512 * 1024 ? bytes : (bytes + 16L + 0xFFFFF) & ~0xFFFFFL;
    }

    private int wanted(int size, int most) {
      if (rows.length - used >= size) return rows.length;
      return Math.max(used + size, (int) Math.min(Math.max(FIRST_BYTES, 4L * rows.length), most));
    }

    private int wantedStarts(int more) {
      return starts.length - count >= more ? starts.length : Math.max(count + more, Math.max(32, 2 * starts.length));
    }

    private void grow(int size, int more, int most) {
      int wanted = wanted(size, most), wantedStarts = wantedStarts(more);
      if (wanted > rows.length) rows = Arrays.copyOf(rows, wanted);
      if (wantedStarts > starts.length) starts = Arrays.copyOf(starts, wantedStarts);
    }

    void add(UnsafeRow row, int size, int most) {
      grow(size, 1, most);
      Object base = row.getBaseObject();
      if (base instanceof byte[]) { // nearly always, and faster
        System.arraycopy(base, (int) (row.getBaseOffset() - Platform.BYTE_ARRAY_OFFSET), rows, used, size);
      } else {
        Platform.copyMemory(base, row.getBaseOffset(), rows, Platform.BYTE_ARRAY_OFFSET + used, size);
      }
      starts[count++] = used;
      used += size;
    }

    void add(Block other, int most) {
      grow(other.used, other.count, most);
      System.arraycopy(other.rows, 0, rows, used, other.used);
      for (int i = 0; i < other.count; i++) starts[count++] = used + other.starts[i];
      used += other.used;
    }

    boolean hasRoomFor(Block other, int most) {
      return alone && other.alone && count + other.count <= MOST_ROWS && (long) used + other.used <= most;
    }

    /** Where a value ends that begins with this row. */
    int endOfValue(int from, int most) {
      int end = from + 1;
      while (end < count && end - from < MOST_ROWS) {
        if ((end + 1 < count ? starts[end + 1] : used) - starts[from] > most) break;
        end++;
      }
      return end;
    }

    void clear(int most) {
      if (rows.length > most) rows = new byte[0];
      count = used = 0;
    }

    long allocated() {
      return inHeap(rows.length) + 4L * starts.length;
    }
  }

  /**
   * What the groups have of Spark's memory for tasks: as much as it gives. Where an operator below asks for some, blocks go
   * to a file, as those of Spark's own sort would.
   */
  private class Memory extends MemoryConsumer implements TaskCompletionListener {
    private Thread owner = Thread.currentThread();
    private long granted;
    private long taken;
    private boolean scarce; // then it keeps nothing to spare, which tasks beside it may wait for
    private boolean ended;
    private File path;
    private RandomAccessFile file;

    Memory(TaskMemoryManager manager) {
      super(manager, manager.pageSizeBytes(), MemoryMode.ON_HEAP);
    }

    /** Whether there is so much; it counts as taken anyway. */
    boolean take(long bytes) {
      taken += bytes;
      if (taken > granted && !ended) granted += acquireMemory(Math.max(taken - granted, scarce ? 0 : STEP));
      scarce |= taken > granted;
      return taken <= granted;
    }

    void release(long bytes) {
      taken -= bytes;
      long spare = granted - Math.max(taken, 0L);
      if (ended || spare <= (scarce ? 0 : 2 * STEP)) return;
      if (!scarce) spare -= STEP;
      granted -= spare;
      freeMemory(spare);
    }

    /** Called below `eval`, when no block is on its way out; from another thread nothing may be touched. */
    public long spill(long wanted, MemoryConsumer other) throws IOException {
      if (other == this || Thread.currentThread() != owner || groups == null) return 0L;
      long before = granted;
      scarce = true;
      release(0L);
      while (before - granted < wanted) {
        Group largest = largest();
        if (largest == null || largest.bytes == 0) break;
        if (largest.bytes >= WORTH_BYTES) {
          putAside(largest);
          continue;
        }
        for (Iterator all = groups.values().iterator(); all.hasNext() && before - granted < wanted;) {
          putAside((Group) all.next()); // each too small for the largest to be looked for
        }
        break;
      }
      return before - granted;
    }

    private void putAside(Group group) throws IOException {
      group.last = null;
      for (Iterator blocks = group.blocks.iterator(); blocks.hasNext();) {
        Block block = (Block) blocks.next();
        if (block.place >= 0) continue;
        write(block);
        group.bytes -= block.used; // which are those in memory
      }
    }

    private void write(Block block) throws IOException {
      if (path == null) {
        File directory = new File(Utils$.MODULE$.getLocalDir(new SparkConf())); // as Spark found them when it began
        path = File.createTempFile("dbio-rows-", null, directory);
      }
      if (file == null) file = new RandomAccessFile(path, "rw");
      long held = block.allocated(), place = file.length();
      file.seek(place);
      file.write(block.rows, 0, block.used);
      block.place = place; // only now: what could not be written is in memory still
      block.rows = new byte[0];
      block.starts = Arrays.copyOf(block.starts, block.count);
      release(held - block.allocated());
    }

    /** What it has now counts as taken, until the block is released. */
    void bringBack(Block block) {
      if (block.place < 0) return;
      long held = block.allocated();
      block.rows = new byte[block.used];
      try {
        file.seek(block.place);
        file.readFully(block.rows);
      } catch (IOException error) {
        throw new UncheckedIOException("rows that were put aside cannot be read back from " + path, error);
      }
      block.place = -1;
      taken += block.allocated() - held;
    }

    public void onTaskCompletion(TaskContext context) {
      ended = true;
      if (granted > 0) freeMemory(granted);
      granted = 0;
      try {
        if (file != null) file.close();
      } catch (IOException error) {
        // its rows are not wanted any more
      }
      if (path != null) path.delete();
    }
  }

  // --- columns out ---

  private byte[] pack(Block block, int from, int to, boolean complete) {
    rows = block.rows;
    starts = from == 0 ? block.starts : Arrays.copyOfRange(block.starts, from, to);
    count = to - from;
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
    putInt(out, 4, complete ? 1 : 0);
    for (int k = 0; k < fields; k++) {
      if (nulls[k] > 0) {
        packNulls(k, out, at);
        at += bitmap();
      }
      at += packValues(k, out, at);
      putInt(out, 8 + 8 * k, nulls[k]);
      putInt(out, 12 + 8 * k, at);
    }
    rows = null;
    return out;
  }

  /**
   * How many nulls each column has. What some operator has left in their places becomes zero, and so of no length. On the
   * way `texts` and `codes` are found. A column of which there are too many texts has no codes until the task ends.
   */
  private int[] clearNulls() {
    int fields = kinds.length();
    long[] any = new long[(fields + 63) / 64];
    texts = new long[fields];
    int[] places = textColumns();
    beginCodes();
    for (int i = 0; i < count; i++) { // row by row, as they are in memory
      for (int w = 0; w < any.length; w++) any[w] |= nullWord(w, i);
      for (int t = 0; t < places.length; t++) {
        int k = places[t];
        texts[k] += textLength(k, i);
        if (codes[k] != null && !codes[k].find(k, i)) codes[k] = null;
      }
    }
    for (int k = 0; k < codes.length; k++) if (codes[k] != null && !codes[k].isWorthwhile()) codes[k] = null;
    int[] found = new int[fields];
    for (int k = 0; k < fields; k++) {
      if ((any[k / 64] >> (k % 64) & 1) == 0) continue;
      for (int i = 0; i < count; i++) {
        if (!isNull(k, i)) continue;
        if (isText(k)) texts[k] -= textLength(k, i);
        Platform.putLong(rows, place(k) + starts[i], 0L);
        found[k]++;
      }
    }
    return found;
  }

  private int[] textColumns() {
    int[] found = new int[kinds.length() - kinds.replace("v", "").replace("t", "").length()];
    for (int k = 0, at = 0; k < kinds.length(); k++) if (isText(k)) found[at++] = k;
    return found;
  }

  private boolean isText(int k) {
    return kinds.charAt(k) == 'v' || kinds.charAt(k) == 't';
  }

  private void beginCodes() {
    if (codes == null) {
      codes = new Codes[kinds.length()];
      for (int k = 0; k < codes.length; k++) if (kinds.charAt(k) == 't') codes[k] = new Codes();
    }
    for (int k = 0; k < codes.length; k++) if (codes[k] != null) codes[k].begin();
  }

  private int textLength(int k, int i) {
    return (int) Platform.getLong(rows, place(k) + starts[i]);
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
      case 'v':
      case 't': return 8 + (codes[k] != null ? codes[k].size() : padded(4 * (count + 1)) + (texts[k] + 7) / 8 * 8);
      default: throw new IllegalArgumentException("no kind of columns: " + kinds.charAt(k));
    }
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
      default:
        putInt(out, at, codes[k] != null ? codes[k].known : -1);
        return 8 + (codes[k] != null ? codes[k].pack(out, at + 8) : packTexts(from, out, to + 8));
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

  /** The texts of a column that have come so far in this task, while they are few, and which of them each row has. */
  private class Codes {
    private static final int MOST = 256; // a code has one byte
    private static final int LONGEST = 64; // all are told again in each value, and may have to be written one by one
    private static final int PLACES = 4 * MOST;

    int known;
    private boolean begun;
    private final byte[] bytes = new byte[MOST * LONGEST];
    private final int[] ends = new int[MOST + 1]; // the first is 0
    private final int[] byHash = new int[PLACES]; // one more than their codes
    private byte[] found = new byte[0];

    void begin() {
      if (found.length < count) found = new byte[count];
    }

    /** Whether the first value has enough rows to tell, and texts repeat in it; later they may do so less. */
    boolean isWorthwhile() {
      boolean seen = begun || (count >= MOST && known > 0 && 2 * known <= count);
      begun = true;
      return seen;
    }

    /** Whether the column has a code in this row. */
    boolean find(int k, int i) {
      long word = isNull(k, i) ? 0L : Platform.getLong(rows, place(k) + starts[i]);
      int code = word == 0L ? 0 : codeOf(Platform.BYTE_ARRAY_OFFSET + starts[i] + (word >>> 32), (int) word);
      found[i] = (byte) code;
      return code >= 0;
    }

    private int codeOf(long text, int length) {
      if (length > LONGEST) return -1;
      int whole = length & ~7;
      long hash = length;
      for (int b = 0; b < whole; b += 8) hash = (hash ^ Platform.getLong(rows, text + b)) * 0x9E3779B97F4A7C15L;
      long rest = rest(rows, text, whole, length);
      hash = (hash ^ rest) * 0x9E3779B97F4A7C15L;
      int at = (int) (hash >>> 32) & (PLACES - 1);
      for (; byHash[at] != 0; at = (at + 1) & (PLACES - 1)) {
        if (isEqual(byHash[at] - 1, text, length, whole, rest)) return byHash[at] - 1;
      }
      if (known == MOST) return -1;
      System.arraycopy(rows, (int) (text - Platform.BYTE_ARRAY_OFFSET), bytes, ends[known], length);
      ends[known + 1] = ends[known] + length;
      byHash[at] = ++known;
      return known - 1;
    }

    private boolean isEqual(int code, long text, int length, int whole, long rest) {
      if (ends[code + 1] - ends[code] != length) return false;
      long own = Platform.BYTE_ARRAY_OFFSET + ends[code];
      for (int b = 0; b < whole; b += 8) {
        if (Platform.getLong(bytes, own + b) != Platform.getLong(rows, text + b)) return false;
      }
      return rest(bytes, own, whole, length) == rest;
    }

    /** The bytes after the whole words. */
    private long rest(byte[] of, long text, int whole, int length) {
      return whole == length ? 0L : Platform.getLong(of, text + whole) & (-1L >>> (64 - 8 * (length - whole)));
    }

    int size() {
      return padded(4 * (known + 1)) + padded(ends[known]) + padded(count);
    }

    int pack(byte[] out, int at) {
      for (int code = 0; code <= known; code++) putInt(out, at + 4 * code, ends[code]);
      int texts = at + padded(4 * (known + 1)), to = texts + padded(ends[known]);
      System.arraycopy(bytes, 0, out, texts, ends[known]);
      System.arraycopy(found, 0, out, to, count);
      return size();
    }
  }

  private static void putInt(byte[] out, int at, int value) {
    Platform.putInt(out, Platform.BYTE_ARRAY_OFFSET + at, value);
  }

  private static int padded(int bytes) {
    return (bytes + 7) & ~7;
  }

  /** Values, each made when its turn comes, and behind each as many nulls as it weighs. */
  private class Values extends AbstractIterator {
    private byte[] value;
    private int nulls;
    private final ArrayDeque blocks;
    private int from; // of the first of them

    Values(byte[] value) {
      this.value = value;
      this.blocks = new ArrayDeque();
    }

    Values(ArrayDeque blocks) {
      this.blocks = blocks;
    }

    public boolean hasNext() {
      return value != null || nulls > 0 || !blocks.isEmpty();
    }

    public Object next() {
      if (nulls > 0) {
        nulls--;
        return new GenericInternalRow(new Object[] {null});
      }
      if (value == null) value = packNext();
      Object row = new GenericInternalRow(new Object[] {value});
      nulls = value.length / nullBytes;
      value = null;
      return row;
    }

    /** As many rows of the first block as there is room for, or all of it and of small ones after it. */
    private byte[] packNext() {
      Block block = (Block) blocks.poll();
      memory.bringBack(block);
      long held = block.allocated();
      while (from == 0 && !blocks.isEmpty() && block.hasRoomFor((Block) blocks.peek(), valueBytes)) {
        Block next = (Block) blocks.poll();
        memory.bringBack(next);
        held += next.allocated();
        block.add(next, valueBytes);
      }
      int first = from, end = block.endOfValue(first, valueBytes);
      boolean whole = end == block.count;
      byte[] packed = pack(block, first, end, whole && block.completes);
      from = whole ? 0 : end;
      if (whole) memory.release(held); else blocks.addFirst(block);
      return packed;
    }
  }
}
