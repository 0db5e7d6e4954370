package dbio_commit;

import java.util.ArrayDeque;
import java.util.ArrayList;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;

/**
 * Packs all rows of a task into a few values, column by column, in the form that `packed.py` describes. Each value is
 * followed by nulls in proportion to its size, so that a bound on the rows of a batch bounds its bytes.
 *
 * Rows that are equal in some columns may be grouped. Then they are held back, in as much memory as Spark gives. A
 * value holds rows of one group, or all rows of some small groups. If memory is too small, rows keep their own order.
 *
 * In the Java that Janino compiles: no lambdas and no generics, so that elements of collections are cast.
 */
final class Packer {
  private static final int LARGE = 4; // rows are added at once until their texts fill so many values

  private final int valueBytes;
  private final int nullBytes;
  private final PackedSchema schema;
  private final InputTexts texts;
  private final BlockWriter writer;
  private final ValueFormat format;
  private final Placement placement = new Placement();
  private final RowGroups groups; // null if no rows are to be grouped
  private final ArrayDeque left = new ArrayDeque(); // blocks on their way out

  private BlockLayout layout; // of blocks that get rows from now on
  private RowBlock loose; // gets the rows that are in no group
  private RowBlock spare; // an empty one, for later
  private InputRows rows; // rows that are being added, or null
  private int done; // how many of these were added
  private int nulls; // how many follow now

  /**
   * `kinds` has a letter for each column, see `PackedSchema`. `together` has a `g` for each column by which rows are
   * grouped. A value ends at about `valueBytes`, and a null stands for `nullBytes` of it.
   */
  Packer(String kinds, String together, DataType[] types, int valueBytes, int nullBytes) {
    this.valueBytes = valueBytes;
    this.nullBytes = nullBytes;
    schema = new PackedSchema(kinds, types);
    texts = new InputTexts(schema, valueBytes / 4);
    writer = new BlockWriter(schema, texts);
    format = new ValueFormat(schema, texts.codes);
    boolean[] coded = new boolean[schema.fields];
    for (int k = 0; k < coded.length; k++) coded[k] = texts.codes[k] != null;
    layout = new BlockLayout(kinds, coded, valueBytes);
    TaskContext task = TaskContext.get();
    int key = together.indexOf('g');
    int single = key == together.lastIndexOf('g') ? key : -1;
    groups = key < 0 || task == null ? null : new RowGroups(schema, single, valueBytes, left, task);
  }

  // --- rows in ---

  /** Adds rows, until all are added or their texts fill some values. Must not be called while it `isAdding`. */
  public void add(InputRows added) {
    if (added.count == 0) return;
    placement.reserve(added.count);
    if (groups != null) groups.memory.beginAdding();
    rows = added;
    done = 0;
    boolean[] coded = texts.find(rows, layout.coded);
    if (coded != null) changeLayout(new BlockLayout(schema.kinds, coded, valueBytes));
    goOn();
  }

  /** Whether some rows are not added yet, as their texts are large. The values must be taken before it goes on. */
  public boolean isAdding() {
    return rows != null;
  }

  /** Adds more of the rows. Once all are added, the packer refers to none of their memory. */
  public void goOn() {
    int begin = done;
    long[] sizes = texts.sizes;
    for (long bytes = 0; done < rows.count && (done == begin || bytes + sizes[done] <= LARGE * (long) valueBytes); done++) {
      long size = layout.rowBytes + sizes[done];
      RowBlock block = isGrouping() ? groups.blockFor(rows, done, size, layout) : null;
      if (block == null) block = inNoGroup(size);
      placement.add(done, block, size);
      bytes += sizes[done];
    }
    placement.sort(rows, begin, done);
    for (int k = 0; k < schema.fields; k++) writer.write(k, rows, placement);
    placement.clear();
    if (done < rows.count) return;
    texts.clear();
    rows = null;
    if (groups != null) groups.memory.endAdding();
  }

  /** No rows follow. */
  public void finish() {
    if (isGrouping()) groups.leaveAll(true);
    leaveLoose();
  }

  private boolean isGrouping() {
    return groups != null && groups.isGrouping();
  }

  private RowBlock inNoGroup(long size) {
    if (loose != null && loose.isFull(size, valueBytes)) leaveLoose();
    if (loose == null) {
      loose = spare != null && spare.layout == layout ? spare : new RowBlock(layout, 0);
      spare = null;
    }
    return loose;
  }

  private void leaveLoose() {
    if (loose != null) left.add(loose);
    loose = null;
  }

  private void changeLayout(BlockLayout changed) {
    layout = changed;
    leaveLoose();
    if (isGrouping()) groups.beginBlocks();
  }

  // --- values out ---

  /** Whether there is a value or a null to take before more rows are added. */
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

  /** A value with the rows of the first block, and of the blocks after it that may share a value with it. */
  private byte[] packNext() {
    ArrayList together = new ArrayList();
    RowBlock block = takeNext();
    together.add(block);
    int count = block.count;
    long bytes = block.bytes, held = block.held;
    while (!left.isEmpty() && block.hasRoomFor((RowBlock) left.peek(), count, bytes, valueBytes)) {
      RowBlock next = takeNext();
      together.add(next);
      count += next.count;
      bytes += next.bytes;
      held += next.held;
    }
    byte[] packed = format.pack((RowBlock[]) together.toArray(new RowBlock[0]), count, block.completes);
    if (groups != null) groups.memory.left(held);
    if (held == 0 && bytes <= valueBytes) {
      spare = block;
      spare.clear();
    }
    return packed;
  }

  private RowBlock takeNext() {
    RowBlock block = (RowBlock) left.poll();
    if (groups != null) groups.memory.bringBack(block);
    return block;
  }
}
