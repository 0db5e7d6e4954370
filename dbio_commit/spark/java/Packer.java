package dbio_commit;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskContext;
import org.apache.spark.memory.MemoryConsumer;
import org.apache.spark.memory.MemoryMode;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.TaskCompletionListener;
import org.apache.spark.util.Utils$;

/**
 * Takes all rows of a task, and gives a few values that hold them column by column, in the form of which `packed.py` tells.
 * Behind each come so many nulls as it weighs, so that a bound on the rows of a batch bounds its bytes.
 *
 * It may put rows together that are equal in some columns. Then it holds them back, in as much memory as Spark lets it
 * have, and a value holds rows of one group, or all of some small ones. Where memory is too little for that, rows come
 * as they are.
 *
 * In the Java that Janino compiles: no lambdas, and what comes out of a collection is cast.
 */
public class Packer {
  private static final int MOST_ROWS = 64 * 1024;
  // Java's collector does not copy arrays of half a region of its heap and more, and gives them whole regions, of a megabyte
  // or more, in which their heads need room, too.
  private static final int FIRST_BYTES = 4 * 1024;
  private static final int BLOCK_BYTES = 4 * 1024 * 1024 - 16 * 1024;
  // A group with so many bytes or rows has a row group for Python, which counts fewer bytes for a row.
  private static final int GROUP_BYTES = 128 * 1024 * 1024;
  private static final int GROUP_ROWS = 256 * 1024;
  private static final long STEP = 4L * 1024 * 1024; // by which memory is asked for
  private static final int WORTH_BYTES = 128 * 1024; // of the largest group: below, values would be too small to pay

  private final String kinds;
  private final DataType[] types;
  private final int fields;
  private final int valueBytes;
  private final int nullBytes;

  private final Codes[] codes; // of columns whose texts may come as codes
  private Layout layout; // says which of them do, now

  private Block loose; // the rows that are in no group
  private LinkedHashMap groups; // by their keys; null where there are none
  private Group[] lately; // by a few bits of their keys
  private int single = -1; // the only column of the keys, where a word holds its values
  private Memory memory;

  // Of the rows that are added just now.
  private Rows rows;
  private UTF8String[][] texts;
  private byte[][] code;
  private long[] sizes = new long[0];
  private Block[] blocks;
  private int[] places; // in their blocks

  // The texts of a dictionary of Parquet's, by their numbers in it; each is known where its stamp is that of now.
  private int stamp;
  private int[] stamps = new int[0];
  private UTF8String[] textById;
  private int[] codeById;

  private final ArrayDeque left = new ArrayDeque(); // blocks on their way out
  private int from; // of the first of them
  private int nulls; // that follow now

  /** Rows, of which each column has some vector, in which it is at some places. */
  public static abstract class Rows {
    public int count;
    public final ColumnVector[] columns;
    public final int[][] places;

    public Rows(int fields) {
      columns = new ColumnVector[fields];
      places = new int[fields][];
    }

    /** The columns of a row in which rows of a group are equal; the same object each time. */
    public abstract UnsafeRow key(int row);
  }

  /**
   * `kinds` has a letter for each column, a `t` for texts that may come as codes; and `together` a `g` for those in which
   * rows of a group are equal, if any. A value ends at about so many bytes, and a null stands for so many.
   */
  public Packer(String kinds, String together, DataType[] types, int valueBytes, int nullBytes) {
    this.kinds = kinds;
    this.types = types;
    this.fields = kinds.length();
    this.valueBytes = valueBytes;
    this.nullBytes = nullBytes;
    codes = new Codes[fields];
    boolean[] coded = new boolean[fields];
    for (int k = 0; k < fields; k++) {
      coded[k] = kinds.charAt(k) == 't';
      if (coded[k]) codes[k] = new Codes();
    }
    layout = new Layout(kinds, coded);
    texts = new UTF8String[fields][];
    code = new byte[fields][];
    TaskContext task = TaskContext.get();
    int first = together.indexOf('g');
    if (first < 0 || task == null) return;
    if (together.lastIndexOf('g') == first && "zbsil".indexOf(kinds.charAt(first)) >= 0) single = first;
    groups = new LinkedHashMap();
    lately = new Group[1024];
    memory = new Memory(task.taskMemoryManager());
    task.addTaskCompletionListener(memory);
  }

  // --- rows in ---

  /** Keeps nothing of what they are made of. */
  public void add(Rows added) {
    rows = added;
    int n = rows.count;
    if (n == 0) return;
    if (sizes.length < n) {
      sizes = new long[n];
      blocks = new Block[n];
      places = new int[n];
    }
    findTexts();
    for (int i = 0; i < n; i++) {
      long size = layout.rowBytes + sizes[i];
      Block block = groups == null ? null : inGroup(i, size);
      if (block == null) block = inNone(size);
      blocks[i] = block;
      places[i] = block.place(size);
    }
    for (int k = 0; k < fields; k++) put(k);
    Arrays.fill(blocks, 0, n, null);
    for (int k = 0; k < fields; k++) if (texts[k] != null) Arrays.fill(texts[k], null);
    rows = null;
  }

  /** No rows follow. */
  public void finish() {
    if (groups != null) leaveAll(true);
    if (loose != null) left.add(loose);
    loose = null;
  }

  private Block inNone(long size) {
    if (loose != null && loose.isFull(size, valueBytes)) {
      left.add(loose);
      loose = null;
    }
    if (loose == null) loose = new Block(layout);
    return loose;
  }

  // --- texts ---

  /** And the bytes of those of each row. A column of which there are too many has no codes from here on. */
  private void findTexts() {
    int n = rows.count;
    Arrays.fill(sizes, 0, n, 0L);
    boolean[] coded = null; // where it is not as before
    for (int k = 0; k < fields; k++) {
      if (!isText(k)) continue;
      if (texts[k] == null || texts[k].length < n) texts[k] = new UTF8String[n];
      boolean has = layout.coded[k];
      if (has && (code[k] == null || code[k].length < n)) code[k] = new byte[n];
      has = findTexts(k, has ? codes[k] : null);
      if (has != layout.coded[k]) {
        if (coded == null) coded = Arrays.copyOf(layout.coded, fields);
        coded[k] = false;
      }
      if (has) continue;
      UTF8String[] own = texts[k];
      for (int i = 0; i < n; i++) if (own[i] != null) sizes[i] += own[i].numBytes();
    }
    if (coded != null) changeLayout(new Layout(kinds, coded));
  }

  /** Of a column; whether it may have these codes still, if any. */
  private boolean findTexts(int k, Codes known) {
    ColumnVector column = rows.columns[k];
    int[] at = rows.places[k];
    UTF8String[] own = texts[k];
    byte[] code = this.code[k];
    boolean isBinary = types[k] instanceof BinaryType, hasNull = column.hasNull();
    WritableColumnVector ids = isBinary ? null : idsOf(column);
    stamp++;
    for (int i = 0; i < rows.count; i++) {
      int place = at[i], found = 0;
      if (hasNull && column.isNullAt(place)) {
        own[i] = null;
      } else if (ids != null) {
        int id = ids.getDictId(place);
        if (id >= stamps.length || stamps[id] != stamp) find(id, column.getUTF8String(place), known);
        own[i] = textById[id];
        found = codeById[id];
      } else {
        own[i] = isBinary ? UTF8String.fromBytes(column.getBinary(place)) : column.getUTF8String(place);
        found = known == null ? 0 : known.codeOf(own[i]);
      }
      if (found < 0) known = null;
      if (known != null) code[i] = (byte) found;
    }
    return known != null && known.isWorthwhile(rows.count);
  }

  /** The numbers of its texts in Parquet's dictionary, where it has one: each text need be looked at but once. */
  private static WritableColumnVector idsOf(ColumnVector column) {
    if (!(column instanceof WritableColumnVector) || !((WritableColumnVector) column).hasDictionary()) return null;
    return ((WritableColumnVector) column).getDictionaryIds();
  }

  private void find(int id, UTF8String text, Codes known) {
    if (id >= stamps.length) {
      int wanted = Math.max(id + 1, 2 * stamps.length);
      stamps = Arrays.copyOf(stamps, wanted);
      textById = (UTF8String[]) Arrays.copyOf(textById == null ? new UTF8String[0] : textById, wanted);
      codeById = Arrays.copyOf(codeById == null ? new int[0] : codeById, wanted);
    }
    stamps[id] = stamp;
    textById[id] = text;
    codeById[id] = known == null ? 0 : known.codeOf(text);
  }

  private void changeLayout(Layout changed) {
    layout = changed;
    if (loose != null) left.add(loose);
    loose = null;
    if (groups == null) return;
    for (Iterator all = groups.values().iterator(); all.hasNext();) ((Group) all.next()).last = null;
  }

  private boolean isText(int k) {
    return kinds.charAt(k) == 'v' || kinds.charAt(k) == 't';
  }

  /** The texts of a column that have come so far in this task, while they are few. */
  static class Codes {
    private static final int MOST = 256; // a code has one byte
    private static final int LONGEST = 64; // all are told again in each value, and may have to be written one by one
    private static final int PLACES = 4 * MOST;

    private int known;
    private int bytes;
    private boolean begun;
    private final UTF8String[] texts = new UTF8String[MOST];
    private final int[] byHash = new int[PLACES]; // one more than their codes

    /** Whether the first rows are enough to tell, and texts repeat in them; later they may do so less. */
    boolean isWorthwhile(int rows) {
      boolean seen = begun || (rows >= MOST && known > 0 && 2 * known <= rows);
      begun = true;
      return seen;
    }

    /** Below 0 where it has none. */
    int codeOf(UTF8String text) {
      if (text.numBytes() > LONGEST) return -1;
      int at = (int) (hash(text) >>> 32) & (PLACES - 1);
      for (; byHash[at] != 0; at = (at + 1) & (PLACES - 1)) {
        if (texts[byHash[at] - 1].equals(text)) return byHash[at] - 1;
      }
      if (known == MOST) return -1;
      texts[known] = text.clone();
      bytes += text.numBytes();
      byHash[at] = ++known;
      return known - 1;
    }

    private static long hash(UTF8String text) {
      int length = text.numBytes();
      if (length < 8) return (text.getPrefix() ^ length) * 0x9E3779B97F4A7C15L;
      long begin = text.getBaseOffset(), hash = length;
      for (int b = 0; b < length - 8; b += 8) {
        hash = (hash ^ Platform.getLong(text.getBaseObject(), begin + b)) * 0x9E3779B97F4A7C15L;
        hash ^= hash >>> 32;
      }
      return (hash ^ Platform.getLong(text.getBaseObject(), begin + length - 8)) * 0x9E3779B97F4A7C15L;
    }

    int size() {
      return padded(4 * (known + 1)) + padded(bytes);
    }

    void pack(byte[] out, int at) {
      int end = 0, to = at + padded(4 * (known + 1));
      for (int code = 0; code < known; code++) {
        putInt(out, at + 4 * code, end);
        texts[code].writeToMemory(out, Platform.BYTE_ARRAY_OFFSET + to + end);
        end += texts[code].numBytes();
      }
      putInt(out, at + 4 * known, end);
    }
  }

  // --- groups ---

  /** The block that has room for the row; null where there is too little memory for groups, so that there are none after it. */
  private Block inGroup(int i, long size) {
    Group group = groupOf(i);
    if (group.last != null && group.last.isFull(size, BLOCK_BYTES)) {
      if (group.bytes >= GROUP_BYTES || group.rows >= GROUP_ROWS) leave(group); else group.last = null;
    }
    Block block = group.last == null ? new Block(layout) : group.last;
    long lacking = block.lacks(size);
    if (lacking > 0 && !memory.take(lacking)) {
      for (long leaving = 0; leaving < lacking;) {
        Group largest = largest();
        if (largest.bytes < WORTH_BYTES) {
          memory.release(lacking);
          leaveAll(false);
          return null;
        }
        leaving += largest.bytes;
        leave(largest);
      }
      if (group.last == null && block.count > 0) { // it has left itself
        memory.release(lacking);
        block = new Block(layout);
        lacking = block.lacks(size);
        memory.take(lacking);
      }
    }
    block.held += lacking;
    if (group.last == null) {
      group.last = block;
      group.blocks.add(block);
    }
    group.bytes += size;
    group.rows++;
    return block;
  }

  private Group groupOf(int i) {
    UnsafeRow key = null;
    boolean isNull = false;
    long word; // of the key, or of its end
    if (single >= 0) {
      ColumnVector column = rows.columns[single];
      int place = rows.places[single][i];
      isNull = column.isNullAt(place);
      word = isNull ? 0L : wordOf(column, place, kinds.charAt(single), types[single]);
    } else {
      key = rows.key(i);
      long end = key.getBaseOffset() + key.getSizeInBytes(); // before it are at least a word of nulls, and a value
      word = Platform.getLong(key.getBaseObject(), end - 8) + 31 * Platform.getLong(key.getBaseObject(), end - 16);
    }
    int bits = (int) (word * 0x9E3779B97F4A7C15L >>> 54);
    Group group = lately[bits];
    if (group != null && group.word == word && group.isNull == isNull && (key == null || group.key.equals(key))) {
      return group;
    }
    if (key == null) key = rows.key(i);
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

  private void leave(Group group) {
    left.addAll(group.blocks);
    group.blocks = new ArrayDeque();
    group.last = null;
    group.bytes = group.rows = 0;
  }

  /** All blocks of all groups, of which there are none any more: each is complete, or rows of it may come yet. */
  private void leaveAll(boolean complete) {
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
  }

  /** Rows that are equal in some columns. */
  static class Group {
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
  }

  // --- blocks ---

  /** How the columns of a block follow each other. */
  static class Layout {
    final boolean[] coded;
    final int[] widths; // of a value: of a text, its code or where it ends
    final int[] before; // the widths of all columns before it
    final int rowBytes;
    final int mostRows;

    Layout(String kinds, boolean[] coded) {
      this.coded = coded;
      widths = new int[coded.length];
      before = new int[coded.length];
      int bytes = 0;
      for (int k = 0; k < coded.length; k++) {
        before[k] = bytes;
        widths[k] = coded[k] ? 1 : widthOf(kinds.charAt(k));
        bytes += widths[k];
      }
      rowBytes = bytes;
      mostRows = Math.max(8, Math.min(MOST_ROWS, BLOCK_BYTES / bytes) & ~7);
    }

    private static int widthOf(char kind) {
      switch (kind) {
        case 'z':
        case 'b': return 1;
        case 's': return 2;
        case 'i':
        case 'v':
        case 't': return 4;
        case 'l': return 8;
        case 'd': return 16;
        default: throw new IllegalArgumentException("no kind of columns: " + kind);
      }
    }
  }

  /** Rows, column by column. It grows fourfold, up to a size at which Java's collector lets it be. */
  static class Block {
    final Layout layout;
    byte[] values = new byte[0]; // with room for as many rows as it has the capacity for; zero where they are null
    final byte[][] nulls; // of each column that has some, a byte for each row
    final byte[][] texts;
    int capacity;
    int count;
    long bytes; // of its rows
    long held; // of memory, as far as it was asked for
    long place = -1; // in the file, if it is there
    private int[] written; // of each column's texts, the bytes that are there
    boolean completes; // its group, which is told when it leaves
    boolean alone; // of its group when that leaves, so that it may share a value with others

    Block(Layout layout) {
      this.layout = layout;
      nulls = new byte[layout.widths.length][];
      texts = new byte[layout.widths.length][];
    }

    boolean isFull(long size, long most) {
      return count == layout.mostRows || (count > 0 && bytes + size > most);
    }

    private int wanted() {
      if (count < capacity) return capacity;
      int first = Math.max(8, Math.min(32, FIRST_BYTES / layout.rowBytes) & ~7);
      return Math.min(layout.mostRows, Math.max(first, 4 * capacity));
    }

    /** The bytes that it must grow by for one row more; for texts there may be as many to spare. */
    long lacks(long size) {
      return (long) (wanted() - capacity) * layout.rowBytes + 2 * (size - layout.rowBytes);
    }

    /** For a row more. */
    int place(long size) {
      if (count == capacity) grow();
      bytes += size;
      return count++;
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

    /** Where a row has the column. */
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

    /** Where the texts of a column end before the row. */
    int endBefore(int k, int row) {
      return row == 0 ? 0 : Platform.getInt(values, addressOf(k, row - 1));
    }

    void setText(int k, int row, UTF8String text) {
      int end = endBefore(k, row);
      if (text != null) {
        int length = text.numBytes();
        byte[] all = texts[k];
        if (all == null || all.length - end < length) {
          long wanted = Math.max((long) end + length, all == null ? 64L : Math.min(2L * all.length, Integer.MAX_VALUE - 64));
          if (wanted > Integer.MAX_VALUE - 64) throw tooLarge(wanted);
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

    /** Keeps nothing but where it is. */
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
      place = end; // only now: what could not be written is in memory still
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

    int nullsOf(int k, int from, int to) {
      int found = 0;
      if (nulls[k] != null) for (int row = from; row < to; row++) found += nulls[k][row];
      return found;
    }

    boolean hasRoomFor(Block other, int rows, long bytes, long most) {
      return alone && other.alone && layout == other.layout && rows + other.count <= MOST_ROWS && bytes + other.bytes <= most;
    }

    /** Where a value ends that begins with this row. */
    int endOfValue(int from, long most) {
      if (bytes <= most) return count;
      int end = from;
      for (long size = 0; end < count; end++) {
        size += layout.rowBytes;
        for (int k = 0; k < texts.length; k++) {
          if (texts[k] != null) size += endBefore(k, end + 1) - endBefore(k, end);
        }
        if (size > most && end > from) break;
      }
      return end;
    }
  }

  // --- memory ---

  /**
   * What the groups have of Spark's memory for tasks: as much as it gives. Where an operator below asks for some, blocks go
   * to a file, as those of Spark's own sort would.
   */
  class Memory extends MemoryConsumer implements TaskCompletionListener {
    private final Thread owner = Thread.currentThread();
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

    /** Called while rows are made, when none are added and no block is on its way out; other threads may touch nothing. */
    public long spill(long wanted, MemoryConsumer other) throws IOException {
      if (other == this || Thread.currentThread() != owner || groups == null || rows != null) return 0L;
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
        group.bytes -= block.bytes; // which are those in memory
      }
    }

    private void write(Block block) throws IOException {
      if (path == null) {
        File directory = new File(Utils$.MODULE$.getLocalDir(new SparkConf())); // as Spark found them when it began
        path = File.createTempFile("dbio-rows-", null, directory);
      }
      if (file == null) file = new RandomAccessFile(path, "rw");
      block.write(file);
      release(block.held);
    }

    /** What it has now counts as taken, until the block is released. */
    void bringBack(Block block) {
      if (block.place < 0) return;
      try {
        block.read(file);
      } catch (IOException error) {
        throw new UncheckedIOException("rows that were put aside cannot be read back from " + path, error);
      }
      taken += block.held;
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

  // --- values to their blocks ---

  private static long wordOf(ColumnVector column, int place, char kind, DataType type) {
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
    if (column instanceof StagedRows$Column) return column.getLong(place);
    if (column instanceof WritableColumnVector) return type.precision() <= 9 ? column.getInt(place) : column.getLong(place);
    return column.getDecimal(place, type.precision(), type.scale()).toUnscaledLong();
  }

  private void put(int k) {
    ColumnVector column = rows.columns[k];
    boolean hasNull = column.hasNull();
    if (hasNull) {
      int[] at = rows.places[k];
      for (int i = 0; i < rows.count; i++) if (column.isNullAt(at[i])) blocks[i].setNull(k, places[i]);
    }
    if (isText(k)) {
      if (layout.coded[k]) putCodes(k); else putTexts(k);
      return;
    }
    switch (kinds.charAt(k)) {
      case 'i':
        if (types[k] instanceof FloatType) putWords(k, column, hasNull); else putInts(k, column, hasNull);
        break;
      case 'l':
        if (isLong(k, column)) putLongs(k, column, hasNull); else putWords(k, column, hasNull);
        break;
      case 'd':
        putDecimals(k, column, hasNull);
        break;
      default:
        putWords(k, column, hasNull);
    }
  }

  private boolean isLong(int k, ColumnVector column) {
    if (types[k] instanceof DoubleType) return false;
    if (!(types[k] instanceof DecimalType) || column instanceof StagedRows$Column) return true;
    return column instanceof WritableColumnVector && ((DecimalType) types[k]).precision() > 9;
  }

  // What most columns are has loops of its own, in which Java need not ask for each value what it is.

  private void putInts(int k, ColumnVector column, boolean hasNull) {
    int[] at = rows.places[k];
    for (int i = 0; i < rows.count; i++) {
      if (hasNull && column.isNullAt(at[i])) continue;
      Platform.putInt(blocks[i].values, blocks[i].addressOf(k, places[i]), column.getInt(at[i]));
    }
  }

  private void putLongs(int k, ColumnVector column, boolean hasNull) {
    int[] at = rows.places[k];
    for (int i = 0; i < rows.count; i++) {
      if (hasNull && column.isNullAt(at[i])) continue;
      Platform.putLong(blocks[i].values, blocks[i].addressOf(k, places[i]), column.getLong(at[i]));
    }
  }

  private void putWords(int k, ColumnVector column, boolean hasNull) {
    int[] at = rows.places[k];
    char kind = kinds.charAt(k);
    for (int i = 0; i < rows.count; i++) {
      if (hasNull && column.isNullAt(at[i])) continue;
      long word = wordOf(column, at[i], kind, types[k]), to = blocks[i].addressOf(k, places[i]);
      switch (layout.widths[k]) {
        case 1: Platform.putByte(blocks[i].values, to, (byte) word); break;
        case 2: Platform.putShort(blocks[i].values, to, (short) word); break;
        case 4: Platform.putInt(blocks[i].values, to, (int) word); break;
        default: Platform.putLong(blocks[i].values, to, word);
      }
    }
  }

  /** The whole numbers, of 16 bytes, the lowest first; those of a column are in bytes too, the highest first. */
  private void putDecimals(int k, ColumnVector column, boolean hasNull) {
    int[] at = rows.places[k];
    DecimalType type = (DecimalType) types[k];
    boolean hasBytes = column instanceof StagedRows$Column || column instanceof WritableColumnVector;
    for (int i = 0; i < rows.count; i++) {
      if (hasNull && column.isNullAt(at[i])) continue;
      byte[] digits = hasBytes ? column.getBinary(at[i]) : bytesOf(column.getDecimal(at[i], type.precision(), type.scale()));
      byte sign = digits.length > 0 && digits[0] < 0 ? (byte) -1 : (byte) 0;
      int to = blocks[i].at(k, places[i]);
      for (int b = 0; b < 16; b++) {
        blocks[i].values[to + b] = b < digits.length ? digits[digits.length - 1 - b] : sign;
      }
    }
  }

  private static byte[] bytesOf(Decimal decimal) {
    return decimal.toJavaBigDecimal().unscaledValue().toByteArray();
  }

  private void putCodes(int k) {
    for (int i = 0; i < rows.count; i++) blocks[i].values[blocks[i].at(k, places[i])] = code[k][i];
  }

  private void putTexts(int k) {
    for (int i = 0; i < rows.count; i++) blocks[i].setText(k, places[i], texts[k][i]);
  }

  // --- values out ---

  /** Whether there is something to take, before more rows are added. */
  public boolean hasNext() {
    return nulls > 0 || !left.isEmpty();
  }

  /** A value, or one of the nulls behind it. */
  public InternalRow next() {
    if (nulls > 0) {
      nulls--;
      return new GenericInternalRow(new Object[] {null});
    }
    byte[] value = packNext();
    nulls = value.length / nullBytes;
    return new GenericInternalRow(new Object[] {value});
  }

  /** As many rows of the first block as there is room for, or all of it and of small ones after it. */
  private byte[] packNext() {
    Block block = takeNext();
    int first = from, end = block.endOfValue(first, valueBytes);
    if (end < block.count) {
      left.addFirst(block);
      from = end;
      return pack(new Block[] {block}, first, end, false);
    }
    from = 0;
    ArrayList together = new ArrayList();
    together.add(block);
    int rows = block.count;
    long bytes = block.bytes, held = block.held;
    while (first == 0 && !left.isEmpty() && block.hasRoomFor((Block) left.peek(), rows, bytes, valueBytes)) {
      Block next = takeNext();
      together.add(next);
      rows += next.count;
      bytes += next.bytes;
      held += next.held;
    }
    byte[] packed = pack((Block[]) together.toArray(new Block[0]), first, end, block.completes);
    if (memory != null) memory.release(held);
    return packed;
  }

  private Block takeNext() {
    Block block = (Block) left.poll();
    if (memory != null) memory.bringBack(block);
    return block;
  }

  /** Of some rows of the first block, and all of the others. */
  private byte[] pack(Block[] blocks, int first, int end, boolean complete) {
    int[] froms = new int[blocks.length], tos = new int[blocks.length];
    int count = 0;
    for (int b = 0; b < blocks.length; b++) {
      froms[b] = b == 0 ? first : 0;
      tos[b] = b == 0 ? end : blocks[b].count;
      count += tos[b] - froms[b];
    }
    Layout layout = blocks[0].layout;
    int[] nulls = new int[fields];
    long[] sizes = new long[fields];
    long size = 8L + 8L * fields;
    for (int k = 0; k < fields; k++) {
      long textBytes = 0;
      for (int b = 0; b < blocks.length; b++) {
        nulls[k] += blocks[b].nullsOf(k, froms[b], tos[b]);
        if (isPlain(layout, k)) textBytes += blocks[b].endBefore(k, tos[b]) - blocks[b].endBefore(k, froms[b]);
      }
      sizes[k] = sizeOf(layout, k, count, textBytes);
      size += (nulls[k] > 0 ? bitmap(count) : 0) + sizes[k];
    }
    if (size > Integer.MAX_VALUE - 64) throw tooLarge(size);
    byte[] out = new byte[(int) size];
    int at = 8 + 8 * fields;
    putInt(out, 0, count);
    putInt(out, 4, complete ? 1 : 0);
    for (int k = 0; k < fields; k++) {
      if (nulls[k] > 0) {
        for (int b = 0, row = 0; b < blocks.length; row += tos[b] - froms[b], b++) packValid(blocks[b].nulls[k], froms[b], tos[b], out, at, row);
        at += bitmap(count);
      }
      packValues(k, blocks, froms, tos, count, out, at);
      at += (int) sizes[k];
      putInt(out, 8 + 8 * k, nulls[k]);
      putInt(out, 12 + 8 * k, at);
    }
    return out;
  }

  private static IllegalStateException tooLarge(long bytes) {
    return new IllegalStateException(
        "a row of " + bytes + " bytes is too large for an array of Java's: split its values");
  }

  private boolean isPlain(Layout layout, int k) {
    return isText(k) && !layout.coded[k];
  }

  /** The bytes of a column's values, in whole words. */
  private long sizeOf(Layout layout, int k, int count, long textBytes) {
    if (kinds.charAt(k) == 'z') return bitmap(count);
    if (!isText(k)) return padded(layout.widths[k] * count);
    if (layout.coded[k]) return 8L + codes[k].size() + padded(count);
    return 8L + padded(4 * (count + 1)) + (textBytes + 7) / 8 * 8;
  }

  private static void packValid(byte[] nulls, int from, int to, byte[] out, int at, int row) {
    for (int i = from; i < to; i++, row++) {
      if (nulls == null || nulls[i] == 0) out[at + (row >> 3)] |= 1 << (row & 7);
    }
  }

  private void packValues(int k, Block[] blocks, int[] froms, int[] tos, int count, byte[] out, int at) {
    Layout layout = blocks[0].layout;
    if (isPlain(layout, k)) {
      putInt(out, at, -1);
      packTexts(k, blocks, froms, tos, out, at + 8, at + 8 + padded(4 * (count + 1)));
      return;
    }
    if (layout.coded[k]) {
      putInt(out, at, codes[k].known);
      codes[k].pack(out, at + 8);
      at += 8 + codes[k].size();
    }
    int width = layout.widths[k];
    for (int b = 0, row = 0; b < blocks.length; row += tos[b] - froms[b], b++) {
      int begin = blocks[b].at(k, froms[b]), length = tos[b] - froms[b];
      if (kinds.charAt(k) == 'z') {
        packBits(blocks[b].values, begin, length, out, at, row);
      } else {
        System.arraycopy(blocks[b].values, begin, out, at + width * row, width * length);
      }
    }
  }

  private static void packBits(byte[] flags, int begin, int length, byte[] out, int at, int row) {
    for (int i = begin; i < begin + length; i++, row++) if (flags[i] != 0) out[at + (row >> 3)] |= 1 << (row & 7);
  }

  private static void packTexts(int k, Block[] blocks, int[] froms, int[] tos, byte[] out, int ends, int to) {
    int end = 0;
    for (int b = 0; b < blocks.length; b++) {
      int begin = blocks[b].endBefore(k, froms[b]), length = blocks[b].endBefore(k, tos[b]) - begin;
      if (length > 0) System.arraycopy(blocks[b].texts[k], begin, out, to + end, length);
      for (int row = froms[b]; row < tos[b]; row++) {
        ends += 4; // the first is 0
        putInt(out, ends, blocks[b].endBefore(k, row + 1) - begin + end);
      }
      end += length;
    }
  }

  private static void putInt(byte[] out, int at, int value) {
    Platform.putInt(out, Platform.BYTE_ARRAY_OFFSET + at, value);
  }

  private static int bitmap(int count) {
    return padded((count + 7) / 8);
  }

  private static int padded(int bytes) {
    return (bytes + 7) & ~7;
  }
}
