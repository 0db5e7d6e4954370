package dbio_commit;

import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.LinkedHashMap;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.unsafe.Platform;

/**
 * Groups rows that are equal in the key columns. Holds the blocks of all groups back, as far as Spark gives memory, so
 * that rows of a group leave together.
 */
final class RowGroups {
  // A group with so many bytes or rows leaves: Python makes a row group of it, for which it counts fewer bytes a row.
  private static final int GROUP_BYTES = 128 * 1024 * 1024;
  private static final int GROUP_ROWS = 256 * 1024;
  private static final int LARGE = 4; // a row larger than so many values is not held back
  /** If the largest group is smaller than this, values would be too small, so that grouping does not pay. */
  static final int WORTH_BYTES = 128 * 1024;

  final GroupMemory memory;
  private final PackedSchema schema;
  private final int single; // the key column, if it is the only one and at most 8 bytes wide; else -1
  private final int valueBytes;
  private final ArrayDeque left; // blocks on their way out
  private LinkedHashMap groups = new LinkedHashMap(); // by key; null once rows are no longer grouped
  private Group[] recent = new Group[1024]; // by ten bits of a hash of the key

  /** For the task; `single` is the key column if it is the only one, or -1. Blocks that leave are added to `left`. */
  RowGroups(PackedSchema schema, int single, int valueBytes, ArrayDeque left, TaskContext task) {
    this.schema = schema;
    this.single = single >= 0 && schema.isWord(single) ? single : -1;
    this.valueBytes = valueBytes;
    this.left = left;
    memory = new GroupMemory(task.taskMemoryManager(), this);
    task.addTaskCompletionListener(memory);
  }

  /** Whether rows are still grouped. */
  boolean isGrouping() {
    return groups != null;
  }

  /** The groups in the order of their first rows. */
  Iterator all() {
    return groups.values().iterator();
  }

  Group largest() {
    Group found = null;
    for (Iterator all = all(); all.hasNext();) {
      Group group = (Group) all.next();
      if (found == null || group.bytes > found.bytes) found = group;
    }
    return found;
  }

  // --- rows in ---

  /**
   * A block with room for the row. Null if memory is too small for groups: then all of them have left, and no row is
   * grouped any more.
   */
  RowBlock blockFor(InputRows rows, int i, long size, BlockLayout layout) {
    Group group = groupOf(rows, i);
    if (size > LARGE * (long) valueBytes) return alone(group, layout);
    int before = 0;
    if (group.last != null && group.last.isFull(size, valueBytes)) {
      before = group.last.count;
      if (group.bytes >= GROUP_BYTES || group.rows >= GROUP_ROWS) leave(group); else group.last = null;
    }
    RowBlock block = group.last == null ? new RowBlock(layout, before / 4) : group.last;
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
      if (group.last == null && block.count > 0) { // this group was the largest, and its block has left
        memory.release(lacking);
        block = new RowBlock(layout, 0);
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

  /** A row that is too large to be held back leaves at once, after the rows of its group. */
  private RowBlock alone(Group group, BlockLayout layout) {
    leave(group);
    RowBlock block = new RowBlock(layout, 0);
    left.add(block);
    return block;
  }

  private Group groupOf(InputRows rows, int i) {
    UnsafeRow key = null;
    boolean isNull = false;
    long word; // the key if it is one word, or a word made of its last two
    if (single >= 0) {
      ColumnVector column = rows.columns[single];
      int place = rows.place(single, i);
      isNull = column.isNullAt(place);
      word = isNull ? 0L : PackedSchema.wordOf(column, place, schema.kinds.charAt(single), schema.types[single]);
    } else {
      key = rows.key(i);
      long end = key.getBaseOffset() + key.getSizeInBytes(); // a key has at least two words: bits for nulls, and a value
      word = Platform.getLong(key.getBaseObject(), end - 8) + 31 * Platform.getLong(key.getBaseObject(), end - 16);
    }
    int bits = (int) (word * 0x9E3779B97F4A7C15L >>> 54);
    Group group = recent[bits];
    if (group != null && group.word == word && group.isNull == isNull && (key == null || group.key.equals(key))) {
      return group;
    }
    if (key == null) key = rows.key(i);
    group = (Group) groups.get(key);
    if (group == null) {
      group = new Group(key.copy(), word, isNull);
      groups.put(group.key, group);
    }
    recent[bits] = group;
    return group;
  }

  /** Rows from now on go to new blocks, as their layout differs. */
  void beginBlocks() {
    for (Iterator all = all(); all.hasNext();) ((Group) all.next()).last = null;
  }

  // --- blocks out ---

  private void leave(Group group) {
    for (Iterator blocks = group.blocks.iterator(); blocks.hasNext();) goOut((RowBlock) blocks.next());
    group.blocks = new ArrayDeque();
    group.last = null;
    group.bytes = group.rows = 0;
  }

  /** All blocks leave, and rows are no longer grouped. `complete`: no more rows come, so the groups are complete. */
  void leaveAll(boolean complete) {
    for (Iterator all = all(); all.hasNext();) {
      ArrayDeque blocks = ((Group) all.next()).blocks;
      if (blocks.isEmpty()) continue;
      RowBlock last = (RowBlock) blocks.peekLast();
      last.completes = complete;
      last.alone = blocks.size() == 1;
      for (Iterator own = blocks.iterator(); own.hasNext();) goOut((RowBlock) own.next());
    }
    groups = null;
    recent = null;
  }

  private void goOut(RowBlock block) {
    left.add(block);
    if (block.place < 0) memory.leaving += block.held;
  }

  /** Rows with the same key. */
  static final class Group {
    final UnsafeRow key;
    final long word; // as `groupOf` computes it from the key
    final boolean isNull; // whether the single key column is null
    ArrayDeque blocks = new ArrayDeque();
    RowBlock last; // to which rows are added; null if the next row begins a block
    long bytes;
    long rows;

    Group(UnsafeRow key, long word, boolean isNull) {
      this.key = key;
      this.word = word;
      this.isNull = isNull;
    }
  }
}
