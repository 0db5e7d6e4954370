package dbio_commit;

import java.util.Arrays;

/** The block of each row, for the rows that are being added. */
final class Placement {
  RowBlock[] blocks = new RowBlock[0]; // in the order in which they get their first row
  int blockCount;
  int[] order; // the rows, sorted by blocks
  int[] chosen; // the same rows by their places in columns that have more rows
  private int[] blockOf; // by row, the number of its block

  void reserve(int rows) {
    if (blocks.length >= rows) return;
    blocks = new RowBlock[rows];
    blockOf = new int[rows];
    order = new int[rows];
    chosen = new int[rows];
  }

  /** Makes room in the block for the row, which has this size. */
  void add(int row, RowBlock block, long size) {
    if (block.number < 0) {
      block.number = blockCount;
      block.before = block.count;
      blocks[blockCount++] = block;
    }
    blockOf[row] = block.number;
    block.place(size);
  }

  /** Sorts the rows by their blocks, so that the values of a column go to each block in one piece. */
  void sort(InputRows rows, int begin, int end) {
    int start = 0;
    for (int b = 0; b < blockCount; b++) {
      blocks[b].next = start;
      start += blocks[b].count - blocks[b].before;
    }
    for (int i = begin; i < end; i++) order[blocks[blockOf[i]].next++] = i;
    if (rows.chosen != null) for (int i = 0; i < end - begin; i++) chosen[i] = rows.chosen[order[i]];
  }

  void clear() {
    for (int b = 0; b < blockCount; b++) blocks[b].number = -1;
    Arrays.fill(blocks, 0, blockCount, null);
    blockCount = 0;
  }
}
