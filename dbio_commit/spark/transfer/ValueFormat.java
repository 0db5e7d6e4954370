package dbio_commit;

/** Makes values of blocks, in the form that `packed.py` describes. */
final class ValueFormat {
  private final PackedSchema schema;
  private final TextCodes[] codes;

  ValueFormat(PackedSchema schema, TextCodes[] codes) {
    this.schema = schema;
    this.codes = codes;
  }

  /** A value with the rows of the blocks, `count` in all. The blocks have the same layout. */
  byte[] pack(RowBlock[] blocks, int count, boolean complete) {
    BlockLayout layout = blocks[0].layout;
    int fields = schema.fields;
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
      size += (nulls[k] > 0 ? PackedBytes.bitmap(count) : 0) + sizes[k];
    }
    if (size > PackedBytes.LARGEST) throw PackedBytes.tooLarge(size);
    byte[] out = new byte[(int) size];
    int at = 8 + 8 * fields;
    PackedBytes.putInt(out, 0, count);
    PackedBytes.putInt(out, 4, complete ? 1 : 0);
    for (int k = 0; k < fields; k++) {
      if (nulls[k] > 0) {
        for (int b = 0, row = 0; b < blocks.length; row += blocks[b].count, b++) packValid(blocks[b], k, out, at, row);
        at += PackedBytes.bitmap(count);
      }
      packValues(k, blocks, count, out, at);
      at += (int) sizes[k];
      PackedBytes.putInt(out, 8 + 8 * k, nulls[k]);
      PackedBytes.putInt(out, 12 + 8 * k, at);
    }
    return out;
  }

  /** Whether the column has texts that do not come as codes. */
  private boolean isPlain(BlockLayout layout, int k) {
    return schema.isText(k) && !layout.coded[k];
  }

  /** The bytes of a column's values, a multiple of 8. */
  private long sizeOf(BlockLayout layout, int k, int count, long textBytes) {
    if (schema.kinds.charAt(k) == 'z') return PackedBytes.bitmap(count);
    if (!schema.isText(k)) return PackedBytes.padded(layout.widths[k] * count);
    if (layout.coded[k]) return 8L + codes[k].size() + PackedBytes.padded(count);
    return 8L + PackedBytes.padded(4 * (count + 1)) + (textBytes + 7) / 8 * 8;
  }

  private static void packValid(RowBlock block, int k, byte[] out, int at, int row) {
    byte[] nulls = block.nulls[k];
    for (int i = 0; i < block.count; i++, row++) {
      if (nulls == null || nulls[i] == 0) out[at + (row >> 3)] |= 1 << (row & 7);
    }
  }

  private void packValues(int k, RowBlock[] blocks, int count, byte[] out, int at) {
    BlockLayout layout = blocks[0].layout;
    if (isPlain(layout, k)) {
      PackedBytes.putInt(out, at, -1);
      packTexts(k, blocks, out, at + 8, at + 8 + PackedBytes.padded(4 * (count + 1)));
      return;
    }
    if (layout.coded[k]) {
      PackedBytes.putInt(out, at, codes[k].known);
      codes[k].pack(out, at + 8);
      at += 8 + codes[k].size();
    }
    int width = layout.widths[k];
    for (int b = 0, row = 0; b < blocks.length; row += blocks[b].count, b++) {
      if (schema.kinds.charAt(k) == 'z') {
        packBits(blocks[b], k, out, at, row);
      } else {
        System.arraycopy(blocks[b].values, blocks[b].at(k, 0), out, at + width * row, width * blocks[b].count);
      }
    }
  }

  private static void packBits(RowBlock block, int k, byte[] out, int at, int row) {
    int begin = block.at(k, 0);
    for (int i = 0; i < block.count; i++, row++) {
      if (block.values[begin + i] != 0) out[at + (row >> 3)] |= 1 << (row & 7);
    }
  }

  private static void packTexts(int k, RowBlock[] blocks, byte[] out, int ends, int to) {
    int end = 0;
    for (int b = 0; b < blocks.length; b++) {
      RowBlock block = blocks[b];
      int length = block.endBefore(k, block.count);
      if (length > 0) System.arraycopy(block.texts[k], 0, out, to + end, length);
      for (int row = 0; row < block.count; row++) {
        ends += 4; // the first is 0
        PackedBytes.putInt(out, ends, end + block.endBefore(k, row + 1));
      }
      end += length;
    }
  }
}
