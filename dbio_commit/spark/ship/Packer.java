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
  private static final int FIRST_BYTES = 4 * 1024; // of a block, which grows
  // A group with so many bytes or rows has a row group for Python, which counts fewer bytes for a row.
  private static final int GROUP_BYTES = 128 * 1024 * 1024;
  private static final int GROUP_ROWS = 256 * 1024;
  private static final long STEP = 4L * 1024 * 1024; // by which memory is asked for
  private static final int LARGE = 4; // a row, or the texts that are added at once, of so many values
  private static final int WORTH_BYTES = 128 * 1024; // of the largest group: below, values would be too small to pay

  private final String kinds;
  private final DataType[] types;
  private final int fields;
  private final int valueBytes;
  private final int nullBytes;

  private final Codes[] codes; // of columns whose texts may come as codes
  private Layout layout; // says which of them do, now

  private Block loose; // the rows that are in no group
  private Block spare; // which was such, and can be again
  private LinkedHashMap groups; // by their keys; null where there are none
  private Group[] lately; // by a few bits of their keys
  private int single = -1; // the only column of the keys, where a word holds its values
  private Memory memory;

  // Of the rows that are added just now.
  private Rows rows;
  private int done; // of these
  private UTF8String[][] texts;
  private byte[][] code;
  private long[] sizes = new long[0];
  private Block[] blocks; // to which they go, in the order in which they are met
  private int blockCount;
  private int[] blockOf; // of each row
  private int[] order; // the rows, block by block
  private int[] chosen; // the same, where only some rows of a vector are chosen

  // The texts of a dictionary of Parquet's, by their numbers in it; each is known where its stamp is that of now.
  private int stamp;
  private int[] stamps = new int[0];
  private UTF8String[] textById = new UTF8String[0];
  private int[] codeById = new int[0];

  private final ArrayDeque left = new ArrayDeque(); // blocks on their way out
  private int nulls; // that follow now

  /** Rows, as columns. Some of these may have more rows than are chosen; the others have just these. */
  public static abstract class Rows {
    public int count;
    public final ColumnVector[] columns;
    public final boolean[] hasMore;
    public int[] chosen;

    public Rows(int fields) {
      columns = new ColumnVector[fields];
      hasMore = new boolean[fields];
    }

    /** Where the column has the row. */
    final int place(int k, int row) {
      return hasMore[k] ? chosen[row] : row;
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
    layout = new Layout(kinds, coded, valueBytes);
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

  /** As many as there is room for; it must not be asked again while it `isAdding`. */
  public void add(Rows added) {
    int n = added.count;
    if (n == 0) return;
    if (sizes.length < n) {
      sizes = new long[n];
      blocks = new Block[n];
      blockOf = new int[n];
      order = new int[n];
      chosen = new int[n];
    }
    if (memory != null) memory.owner = Thread.currentThread();
    rows = added;
    done = 0;
    findTexts();
    goOn();
  }

  /** Whether rows are left of which the texts are large: what there is has to be taken before it goes on. */
  public boolean isAdding() {
    return rows != null;
  }

  /** Once there are no rows left, it has nothing any more of what they were made of. */
  public void goOn() {
    int begin = done;
    for (long bytes = 0; done < rows.count && (done == begin || bytes + sizes[done] <= LARGE * (long) valueBytes); done++) {
      long size = layout.rowBytes + sizes[done];
      Block block = groups == null ? null : inGroup(done, size);
      if (block == null) block = inNone(size);
      blockOf[done] = numberOf(block);
      block.place(size);
      bytes += sizes[done];
    }
    sort(begin);
    for (int k = 0; k < fields; k++) put(k);
    for (int b = 0; b < blockCount; b++) blocks[b].number = -1;
    Arrays.fill(blocks, 0, blockCount, null);
    blockCount = 0;
    if (done < rows.count) return;
    for (int k = 0; k < fields; k++) if (texts[k] != null) Arrays.fill(texts[k], null);
    rows = null;
  }

  private int numberOf(Block block) {
    if (block.number < 0) {
      block.number = blockCount;
      block.before = block.count;
      blocks[blockCount++] = block;
    }
    return block.number;
  }

  /** By blocks, so that each column goes to a block in one piece. */
  private void sort(int begin) {
    int start = 0;
    for (int b = 0; b < blockCount; b++) {
      blocks[b].next = start;
      start += blocks[b].count - blocks[b].before;
    }
    for (int i = begin; i < done; i++) order[blocks[blockOf[i]].next++] = i;
    if (rows.chosen != null) for (int i = 0; i < done - begin; i++) chosen[i] = rows.chosen[order[i]];
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
    if (loose == null) {
      loose = spare != null && spare.layout == layout ? spare : new Block(layout, 0);
      spare = null;
    }
    return loose;
  }

  // --- texts ---

  /**
   * As codes or as they are; and the bytes of the latter in each row. A column has no codes from here on where there are
   * too many texts, or where a value, which tells those of all columns, would hold little else.
   */
  private void findTexts() {
    Arrays.fill(sizes, 0, rows.count, 0L);
    int told = 0;
    boolean[] coded = null; // where it is not as before
    for (int k = 0; k < fields; k++) {
      if (!isText(k)) continue;
      if (layout.coded[k]) {
        if (findCodes(k) && told + codes[k].size() <= valueBytes / 4) {
          told += codes[k].size();
          continue;
        }
        if (coded == null) coded = Arrays.copyOf(layout.coded, fields);
        coded[k] = false;
      }
      findTexts(k);
    }
    if (coded != null) changeLayout(new Layout(kinds, coded, valueBytes));
  }

  /** Whether all rows have one, and codes are worthwhile. */
  private boolean findCodes(int k) {
    if (code[k] == null || code[k].length < rows.count) code[k] = new byte[rows.count];
    ColumnVector column = rows.columns[k];
    boolean isBinary = types[k] instanceof BinaryType, hasNull = column.hasNull();
    WritableColumnVector ids = isBinary ? null : idsOf(column);
    byte[] own = code[k];
    Codes known = codes[k];
    StagedRows$Column staged = column instanceof StagedRows$Column ? (StagedRows$Column) column : null;
    stamp++;
    for (int i = 0; i < rows.count; i++) {
      int place = rows.place(k, i), found = 0;
      if (hasNull && column.isNullAt(place)) {
        // any will do
      } else if (staged != null) {
        found = known.codeOf(staged.bytes(), staged.addressOf(place), staged.lengthOf(place));
      } else if (ids == null) {
        found = known.codeOf(isBinary ? UTF8String.fromBytes(column.getBinary(place)) : column.getUTF8String(place));
      } else {
        int id = ids.getDictId(place);
        if (isNew(id)) codeById[id] = known.codeOf(column.getUTF8String(place));
        found = codeById[id];
      }
      if (found < 0) return false;
      own[i] = (byte) found;
    }
    return known.isWorthwhile(rows.count);
  }

  private void findTexts(int k) {
    if (texts[k] == null || texts[k].length < rows.count) texts[k] = new UTF8String[rows.count];
    ColumnVector column = rows.columns[k];
    boolean isBinary = types[k] instanceof BinaryType, hasNull = column.hasNull();
    WritableColumnVector ids = isBinary ? null : idsOf(column);
    UTF8String[] own = texts[k];
    stamp++;
    for (int i = 0; i < rows.count; i++) {
      int place = rows.place(k, i);
      if (hasNull && column.isNullAt(place)) {
        own[i] = null;
        continue;
      }
      if (ids == null) {
        own[i] = isBinary ? UTF8String.fromBytes(column.getBinary(place)) : column.getUTF8String(place);
      } else {
        int id = ids.getDictId(place);
        if (isNew(id)) textById[id] = column.getUTF8String(place);
        own[i] = textById[id];
      }
      sizes[i] += own[i].numBytes();
    }
  }

  /** The numbers of its texts in Parquet's dictionary, where it has one: each text need be looked at but once. */
  private static WritableColumnVector idsOf(ColumnVector column) {
    if (!(column instanceof WritableColumnVector) || !((WritableColumnVector) column).hasDictionary()) return null;
    return ((WritableColumnVector) column).getDictionaryIds();
  }

  private boolean isNew(int id) {
    if (id >= stamps.length) {
      int wanted = Math.max(id + 1, 2 * stamps.length);
      stamps = Arrays.copyOf(stamps, wanted);
      codeById = Arrays.copyOf(codeById, wanted);
      textById = (UTF8String[]) Arrays.copyOf(textById, wanted);
    }
    boolean isNew = stamps[id] != stamp;
    stamps[id] = stamp;
    return isNew;
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
    private boolean begun;
    private final byte[] texts = new byte[MOST * LONGEST];
    private final int[] ends = new int[MOST + 1]; // the first is 0
    private final int[] byHash = new int[PLACES]; // one more than their codes

    /** Whether the first rows are enough to tell, and texts repeat in them; later they may do so less. */
    boolean isWorthwhile(int rows) {
      boolean seen = begun || (rows >= MOST && known > 0 && 2 * known <= rows);
      begun = true;
      return seen;
    }

    /** Below 0 where it has none. */
    int codeOf(UTF8String text) {
      return codeOf(text.getBaseObject(), text.getBaseOffset(), text.numBytes());
    }

    int codeOf(Object base, long text, int length) {
      if (length > LONGEST) return -1;
      long last = lastWord(base, text, length), hash = length;
      for (int b = 0; b < length - 8; b += 8) hash = (hash ^ Platform.getLong(base, text + b)) * 0x9E3779B97F4A7C15L;
      hash = (hash ^ last) * 0x9E3779B97F4A7C15L;
      int at = (int) (hash >>> 40) & (PLACES - 1);
      for (; byHash[at] != 0; at = (at + 1) & (PLACES - 1)) {
        if (isEqual(byHash[at] - 1, base, text, length, last)) return byHash[at] - 1;
      }
      if (known == MOST) return -1;
      Platform.copyMemory(base, text, texts, Platform.BYTE_ARRAY_OFFSET + ends[known], length);
      ends[known + 1] = ends[known] + length;
      byHash[at] = ++known;
      return known - 1;
    }

    private boolean isEqual(int code, Object base, long text, int length, long last) {
      if (ends[code + 1] - ends[code] != length) return false;
      long own = Platform.BYTE_ARRAY_OFFSET + ends[code];
      for (int b = 0; b < length - 8; b += 8) {
        if (Platform.getLong(texts, own + b) != Platform.getLong(base, text + b)) return false;
      }
      return lastWord(texts, own, length) == last;
    }

    /** With what is before it, and the length, it tells the text; nothing beside the text is read. */
    private static long lastWord(Object base, long text, int length) {
      if (length >= 8) return Platform.getLong(base, text + length - 8);
      if (length >= 4) return (long) Platform.getInt(base, text) << 32 ^ Platform.getInt(base, text + length - 4);
      long word = 0;
      for (int b = 0; b < length; b++) word = word << 8 ^ Platform.getByte(base, text + b);
      return word;
    }

    int size() {
      return padded(4 * (known + 1)) + padded(ends[known]);
    }

    void pack(byte[] out, int at) {
      for (int code = 0; code <= known; code++) putInt(out, at + 4 * code, ends[code]);
      System.arraycopy(texts, 0, out, at + padded(4 * (known + 1)), ends[known]);
    }
  }

  // --- groups ---

  /** The block that has room for the row; null where there is too little memory for groups, so that there are none after it. */
  private Block inGroup(int i, long size) {
    Group group = groupOf(i);
    if (size > LARGE * (long) valueBytes) return alone(group);
    int before = 0;
    if (group.last != null && group.last.isFull(size, valueBytes)) {
      before = group.last.count;
      if (group.bytes >= GROUP_BYTES || group.rows >= GROUP_ROWS) leave(group); else group.last = null;
    }
    Block block = group.last == null ? new Block(layout, before / 4) : group.last;
    long lacking = block.lacks(size);
    if (lacking > 0 && !memory.take(lacking)) {
      for (long gone = 0; gone < lacking;) {
        Group largest = largest();
        if (largest.bytes < WORTH_BYTES) {
          memory.release(lacking);
          leaveAll(false);
          return null;
        }
        gone += largest.bytes;
        leave(largest);
      }
      if (group.last == null && block.count > 0) { // it has left itself
        memory.release(lacking);
        block = new Block(layout, 0);
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

  /** A row that is too large to be held goes behind what there is of its group. */
  private Block alone(Group group) {
    leave(group);
    Block block = new Block(layout, 0);
    left.add(block);
    return block;
  }

  private Group groupOf(int i) {
    UnsafeRow key = null;
    boolean isNull = false;
    long word; // of the key, or of its end
    if (single >= 0) {
      ColumnVector column = rows.columns[single];
      int place = rows.place(single, i);
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
    for (Iterator blocks = group.blocks.iterator(); blocks.hasNext();) goOut((Block) blocks.next());
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
      for (Iterator own = blocks.iterator(); own.hasNext();) goOut((Block) own.next());
    }
    groups = null;
    lately = null;
  }

  private void goOut(Block block) {
    left.add(block);
    if (block.place < 0) memory.leaving += block.held;
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

    Layout(String kinds, boolean[] coded, int most) {
      this.coded = coded;
      widths = new int[coded.length];
      before = new int[coded.length];
      int bytes = 0;
      for (int k = 0; k < coded.length; k++) {
        before[k] = bytes;
        widths[k] = coded[k] ? 1 : widthOf(kinds.charAt(k));
        bytes += widths[k];
      }
      rowBytes = Math.max(bytes, 1);
      mostRows = Math.max(8, Math.min(MOST_ROWS, most / rowBytes) & ~7);
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

  /** Rows of a value, column by column. It grows fourfold. */
  static class Block {
    final Layout layout;
    private final int first;
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

    // While rows are added:
    int number = -1; // among the blocks that get some; -1 where it gets none
    int before; // the rows that it had
    int next; // of the rows in their order, the one behind the last that is its own

    /** Of so many rows at first, or of a few where it is 0. */
    Block(Layout layout, int rows) {
      this.layout = layout;
      first = Math.max(8, (rows > 0 ? rows : Math.min(32, FIRST_BYTES / layout.rowBytes)) & ~7);
      nulls = new byte[layout.widths.length][];
      texts = new byte[layout.widths.length][];
    }

    boolean isFull(long size, long most) {
      return count == layout.mostRows || (count > 0 && bytes + size > most);
    }

    private int wanted() {
      if (count < capacity) return capacity;
      return Math.min(layout.mostRows, Math.max(first, 4 * capacity));
    }

    /** The bytes that it must grow by for one row more; all may be null, and texts may have as much room to spare. */
    long lacks(long size) {
      return (long) (wanted() - capacity) * (layout.rowBytes + nulls.length) + 2 * (size - layout.rowBytes);
    }

    /** Has a place for a row more. */
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

    int nullsOf(int k) {
      int found = 0;
      if (nulls[k] != null) for (int row = 0; row < count; row++) found += nulls[k][row];
      return found;
    }

    boolean hasRoomFor(Block other, int rows, long bytes, long most) {
      return alone && other.alone && layout == other.layout && rows + other.count <= MOST_ROWS && bytes + other.bytes <= most;
    }

    void clear() {
      count = 0;
      bytes = 0;
      Arrays.fill(values, (byte) 0);
      Arrays.fill(nulls, null);
    }
  }

  // --- memory ---

  /**
   * What the groups have of Spark's memory for tasks: as much as it gives. Where an operator below asks for some, blocks go
   * to a file, as those of Spark's own sort would.
   */
  class Memory extends MemoryConsumer implements TaskCompletionListener {
    private Thread owner; // in which rows are added
    private long granted;
    private long taken;
    private long leaving; // of what is taken, what goes before more rows are added
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
      long staying = taken - leaving;
      if (staying > granted && !ended) granted += acquireMemory(Math.max(staying - granted, scarce ? 0 : STEP));
      scarce |= staying > granted;
      return staying <= granted;
    }

    void left(long bytes) {
      leaving -= bytes;
      release(bytes);
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
      leaving += block.held;
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
    int[] at = rows.hasMore[k] ? chosen : order;
    int from = 0;
    for (int b = 0; b < blockCount; b++) {
      Block block = blocks[b];
      if (column.hasNull()) {
        for (int i = from; i < block.next; i++) if (column.isNullAt(at[i])) block.setNull(k, block.before + i - from);
      }
      put(k, column, at, from, block);
      from = block.next;
    }
  }

  /** Of a column, those for the block, from this row on in their order. */
  private void put(int k, ColumnVector column, int[] at, int from, Block block) {
    switch (kinds.charAt(k)) {
      case 'v':
      case 't':
        if (layout.coded[k]) putCodes(k, from, block); else putTexts(k, from, block);
        break;
      case 'i':
        if (types[k] instanceof FloatType) putWords(k, column, at, from, block); else putInts(k, column, at, from, block);
        break;
      case 'l':
        if (isLong(k, column)) putLongs(k, column, at, from, block); else putWords(k, column, at, from, block);
        break;
      case 'd':
        putDecimals(k, column, at, from, block);
        break;
      default:
        putWords(k, column, at, from, block);
    }
  }

  private boolean isLong(int k, ColumnVector column) {
    if (types[k] instanceof DoubleType) return false;
    if (!(types[k] instanceof DecimalType) || column instanceof StagedRows$Column) return true;
    return column instanceof WritableColumnVector && ((DecimalType) types[k]).precision() > 9;
  }

  // What most columns are has loops of its own, in which Java need not ask for each value what it is.

  private static void putInts(int k, ColumnVector column, int[] at, int from, Block block) {
    boolean hasNull = column.hasNull();
    byte[] values = block.values;
    long to = block.addressOf(k, block.before);
    if (column instanceof StagedRows$Column) {
      ((StagedRows$Column) column).copyInts(at, from, block.next, values, to);
      return;
    }
    for (int i = from, end = block.next; i < end; i++, to += 4) {
      if (!hasNull || !column.isNullAt(at[i])) Platform.putInt(values, to, column.getInt(at[i]));
    }
  }

  private static void putLongs(int k, ColumnVector column, int[] at, int from, Block block) {
    boolean hasNull = column.hasNull();
    byte[] values = block.values;
    long to = block.addressOf(k, block.before);
    if (column instanceof StagedRows$Column) {
      ((StagedRows$Column) column).copyLongs(at, from, block.next, values, to);
      return;
    }
    for (int i = from, end = block.next; i < end; i++, to += 8) {
      if (!hasNull || !column.isNullAt(at[i])) Platform.putLong(values, to, column.getLong(at[i]));
    }
  }

  private void putWords(int k, ColumnVector column, int[] at, int from, Block block) {
    boolean hasNull = column.hasNull();
    char kind = kinds.charAt(k);
    int width = block.layout.widths[k];
    long to = block.addressOf(k, block.before);
    for (int i = from; i < block.next; i++, to += width) {
      if (hasNull && column.isNullAt(at[i])) continue;
      long word = wordOf(column, at[i], kind, types[k]);
      switch (width) {
        case 1: Platform.putByte(block.values, to, (byte) word); break;
        case 2: Platform.putShort(block.values, to, (short) word); break;
        case 4: Platform.putInt(block.values, to, (int) word); break;
        default: Platform.putLong(block.values, to, word);
      }
    }
  }

  /** The whole numbers, of 16 bytes, the lowest first; those of a column are in bytes too, the highest first. */
  private void putDecimals(int k, ColumnVector column, int[] at, int from, Block block) {
    DecimalType type = (DecimalType) types[k];
    boolean hasNull = column.hasNull();
    boolean hasBytes = column instanceof StagedRows$Column || column instanceof WritableColumnVector;
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

  private void putCodes(int k, int from, Block block) {
    byte[] own = code[k];
    int to = block.at(k, block.before);
    for (int i = from; i < block.next; i++) block.values[to++] = own[order[i]];
  }

  private void putTexts(int k, int from, Block block) {
    UTF8String[] own = texts[k];
    int row = block.before;
    for (int i = from; i < block.next; i++) block.setText(k, row++, own[order[i]]);
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

  /** The first block, and small ones after it. */
  private byte[] packNext() {
    ArrayList together = new ArrayList();
    Block block = takeNext();
    together.add(block);
    int rows = block.count;
    long bytes = block.bytes, held = block.held;
    while (!left.isEmpty() && block.hasRoomFor((Block) left.peek(), rows, bytes, valueBytes)) {
      Block next = takeNext();
      together.add(next);
      rows += next.count;
      bytes += next.bytes;
      held += next.held;
    }
    byte[] packed = pack((Block[]) together.toArray(new Block[0]), rows, block.completes);
    if (memory != null) memory.left(held);
    if (held == 0 && bytes <= valueBytes) {
      spare = block;
      spare.clear();
    }
    return packed;
  }

  private Block takeNext() {
    Block block = (Block) left.poll();
    if (memory != null) memory.bringBack(block);
    return block;
  }

  private byte[] pack(Block[] blocks, int count, boolean complete) {
    Layout layout = blocks[0].layout;
    int[] nulls = new int[fields];
    long[] sizes = new long[fields];
    long size = 8L + 8L * fields;
    for (int k = 0; k < fields; k++) {
      long textBytes = 0;
      for (int b = 0; b < blocks.length; b++) {
        nulls[k] += blocks[b].nullsOf(k);
        if (isPlain(layout, k)) textBytes += blocks[b].endBefore(k, blocks[b].count);
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
        for (int b = 0, row = 0; b < blocks.length; row += blocks[b].count, b++) packValid(blocks[b], k, out, at, row);
        at += bitmap(count);
      }
      packValues(k, blocks, count, out, at);
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

  private static void packValid(Block block, int k, byte[] out, int at, int row) {
    byte[] nulls = block.nulls[k];
    for (int i = 0; i < block.count; i++, row++) {
      if (nulls == null || nulls[i] == 0) out[at + (row >> 3)] |= 1 << (row & 7);
    }
  }

  private void packValues(int k, Block[] blocks, int count, byte[] out, int at) {
    Layout layout = blocks[0].layout;
    if (isPlain(layout, k)) {
      putInt(out, at, -1);
      packTexts(k, blocks, out, at + 8, at + 8 + padded(4 * (count + 1)));
      return;
    }
    if (layout.coded[k]) {
      putInt(out, at, codes[k].known);
      codes[k].pack(out, at + 8);
      at += 8 + codes[k].size();
    }
    int width = layout.widths[k];
    for (int b = 0, row = 0; b < blocks.length; row += blocks[b].count, b++) {
      if (kinds.charAt(k) == 'z') {
        packBits(blocks[b], k, out, at, row);
      } else {
        System.arraycopy(blocks[b].values, blocks[b].at(k, 0), out, at + width * row, width * blocks[b].count);
      }
    }
  }

  private static void packBits(Block block, int k, byte[] out, int at, int row) {
    int begin = block.at(k, 0);
    for (int i = 0; i < block.count; i++, row++) {
      if (block.values[begin + i] != 0) out[at + (row >> 3)] |= 1 << (row & 7);
    }
  }

  private static void packTexts(int k, Block[] blocks, byte[] out, int ends, int to) {
    int end = 0;
    for (int b = 0; b < blocks.length; b++) {
      Block block = blocks[b];
      int length = block.endBefore(k, block.count);
      if (length > 0) System.arraycopy(block.texts[k], 0, out, to + end, length);
      for (int row = 0; row < block.count; row++) {
        ends += 4; // the first is 0
        putInt(out, ends, end + block.endBefore(k, row + 1));
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
