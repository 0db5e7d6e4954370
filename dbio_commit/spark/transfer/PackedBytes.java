package dbio_commit;

import org.apache.spark.unsafe.Platform;

/** Numbers and sizes in a packed value, where each part begins at a multiple of 8 bytes. */
final class PackedBytes {
  /** The largest array that Java makes. */
  static final int LARGEST = Integer.MAX_VALUE - 64;

  private PackedBytes() {
  }

  static void putInt(byte[] out, int at, int value) {
    Platform.putInt(out, Platform.BYTE_ARRAY_OFFSET + at, value);
  }

  /** The number of bytes, rounded up to a multiple of 8. */
  static int padded(int bytes) {
    return (bytes + 7) & ~7;
  }

  /** The bytes of a bitmap with a bit for each row. */
  static int bitmap(int rows) {
    return padded((rows + 7) / 8);
  }

  static IllegalStateException tooLarge(long bytes) {
    return new IllegalStateException(
        "a row of " + bytes + " bytes does not fit into a Java array (at most 2 GiB): split its values");
  }
}
