package dbio_commit;

/** Where each column of a block begins, and how wide its values are. */
final class BlockLayout {
  static final int MOST_ROWS = 64 * 1024; // in a value

  final boolean[] coded; // the columns of texts that come as codes
  final int[] widths; // the bytes of a value; of a text: of its code, or of the number that says where it ends
  final int[] before; // the widths of all columns before this one
  final int rowBytes;
  final int mostRows;

  /** For blocks with about `most` bytes. */
  BlockLayout(String kinds, boolean[] coded, int most) {
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
      default: throw new IllegalArgumentException("unknown kind of column: " + kind);
    }
  }
}
