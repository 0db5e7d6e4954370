package dbio_commit;

import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** The distinct texts of one column of a task, numbered by codes of one byte, as long as they are few and short. */
final class TextCodes {
  private static final int MOST = 256; // as many codes as a byte has
  private static final int LONGEST = 64; // bytes; each value repeats all texts, and Python may write each on its own
  private static final int PLACES = 4 * MOST;

  int known;
  private boolean begun;
  private final byte[] texts = new byte[MOST * LONGEST];
  private final int[] ends = new int[MOST + 1]; // ends[code + 1] is the end of the code's text; ends[0] is 0
  private final int[] byHash = new int[PLACES]; // codes plus one; 0 if free

  /** Whether codes pay. The first rows decide: they must be enough, and their texts must repeat. */
  boolean isWorthwhile(int rows) {
    boolean seen = begun || (rows >= MOST && known > 0 && 2 * known <= rows);
    begun = true;
    return seen;
  }

  /** The code of the text, which is new or known; -1 if the text is too long or there are too many. */
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

  /** The last bytes of the text as a word: the length, the whole words before and this one identify the text. */
  private static long lastWord(Object base, long text, int length) {
    if (length >= 8) return Platform.getLong(base, text + length - 8); // never reads bytes outside the text
    if (length >= 4) return (long) Platform.getInt(base, text) << 32 ^ Platform.getInt(base, text + length - 4);
    long word = 0;
    for (int b = 0; b < length; b++) word = word << 8 ^ Platform.getByte(base, text + b);
    return word;
  }

  /** The bytes that `pack` writes. */
  int size() {
    return PackedBytes.padded(4 * (known + 1)) + PackedBytes.padded(ends[known]);
  }

  /** Writes the ends of the texts, and then the texts. */
  void pack(byte[] out, int at) {
    for (int code = 0; code <= known; code++) PackedBytes.putInt(out, at + 4 * code, ends[code]);
    System.arraycopy(texts, 0, out, at + PackedBytes.padded(4 * (known + 1)), ends[known]);
  }
}
