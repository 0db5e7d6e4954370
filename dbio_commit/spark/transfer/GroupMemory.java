package dbio_commit;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.util.Iterator;
import org.apache.spark.SparkConf;
import org.apache.spark.TaskContext;
import org.apache.spark.memory.MemoryConsumer;
import org.apache.spark.memory.MemoryMode;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.util.TaskCompletionListener;
import org.apache.spark.util.Utils$;

/**
 * The part of Spark's memory for tasks that groups of rows use. If an operator below needs memory, spills blocks to a
 * local file, as Spark's own sort does.
 */
final class GroupMemory extends MemoryConsumer implements TaskCompletionListener {
  private static final long STEP = 4L * 1024 * 1024; // the least that is asked for at once

  long leaving; // part of `taken`: bytes of blocks that go out before more rows are added
  private final RowGroups groups;
  private Thread adding; // the thread that adds rows
  private boolean isAdding; // now, so that blocks must stay as they are
  private long granted; // bytes, by Spark
  private long taken; // bytes, by blocks
  private boolean scarce; // Spark has given less than was asked for, so nothing is kept in reserve: others may need it
  private boolean ended;
  private File path;
  private RandomAccessFile file;

  GroupMemory(TaskMemoryManager manager, RowGroups groups) {
    super(manager, manager.pageSizeBytes(), MemoryMode.ON_HEAP);
    this.groups = groups;
  }

  void beginAdding() {
    adding = Thread.currentThread();
    isAdding = true;
  }

  void endAdding() {
    isAdding = false;
  }

  // --- taken and given back ---

  /** Takes so many bytes. False if Spark has not granted them; they count as taken all the same. */
  boolean take(long bytes) {
    taken += bytes;
    long staying = taken - leaving;
    if (staying > granted && !ended) granted += acquireMemory(Math.max(staying - granted, scarce ? 0 : STEP));
    scarce |= staying > granted;
    return staying <= granted;
  }

  /** Gives back the memory of blocks that have gone out. */
  void left(long bytes) {
    leaving -= bytes;
    release(bytes);
  }

  /** Gives back the memory of a block. */
  void release(long bytes) {
    taken -= bytes;
    long spare = granted - Math.max(taken, 0L);
    if (ended || spare <= (scarce ? 0 : 2 * STEP)) return;
    if (!scarce) spare -= STEP;
    granted -= spare;
    freeMemory(spare);
  }

  // --- spilling ---

  /**
   * Called by Spark when an operator needs memory. Spills only if this thread is the one that adds rows, and is not adding
   * any now: it is then in an operator below, which makes the next rows. No other thread may touch the blocks.
   */
  public long spill(long wanted, MemoryConsumer other) throws IOException {
    if (other == this || Thread.currentThread() != adding || !groups.isGrouping() || isAdding) return 0L;
    long before = granted;
    scarce = true;
    release(0L);
    while (before - granted < wanted) {
      RowGroups.Group largest = groups.largest();
      if (largest == null || largest.bytes == 0) break;
      if (largest.bytes >= RowGroups.WORTH_BYTES) {
        spill(largest);
        continue;
      }
      for (Iterator all = groups.all(); all.hasNext() && before - granted < wanted;) {
        spill((RowGroups.Group) all.next()); // all are small: looking for the largest each time would not pay
      }
      break;
    }
    return before - granted;
  }

  private void spill(RowGroups.Group group) throws IOException {
    group.last = null;
    for (Iterator blocks = group.blocks.iterator(); blocks.hasNext();) {
      RowBlock block = (RowBlock) blocks.next();
      if (block.place >= 0) continue;
      write(block);
      group.bytes -= block.bytes; // a group's bytes are those in memory
    }
  }

  private void write(RowBlock block) throws IOException {
    if (path == null) {
      File directory = new File(Utils$.MODULE$.getLocalDir(new SparkConf())); // Spark remembers its directories
      path = File.createTempFile("dbio-rows-", null, directory);
    }
    if (file == null) file = new RandomAccessFile(path, "rw");
    block.write(file);
    release(block.held);
  }

  /** Reads the block if it was spilled. Its memory counts as taken again until `left`. */
  void bringBack(RowBlock block) {
    if (block.place < 0) return;
    try {
      block.read(file);
    } catch (IOException error) {
      throw new UncheckedIOException("cannot read back spilled rows from " + path + ": check the local disk", error);
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
      // the task has ended and needs none of its rows
    }
    if (path != null) path.delete();
  }
}
