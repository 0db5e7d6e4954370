package dbio_commit;

import java.util.Arrays;
import org.apache.spark.sql.execution.vectorized.WritableColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.unsafe.types.UTF8String;

/** The texts and binaries of the rows that are being added: of each column either the values or their codes. */
final class InputTexts {
  final TextCodes[] codes; // of the columns that may come as codes
  final UTF8String[][] texts; // by column and row; null for SQL null
  final byte[][] code; // by column and row; any code for SQL null
  long[] sizes = new long[0]; // the bytes of each row's texts that do not come as codes

  private final PackedSchema schema;
  private final int mostCodeBytes;

  // The texts of a Parquet dictionary by their ids. An entry is valid if its stamp equals `stamp`.
  private int stamp;
  private int[] stamps = new int[0];
  private UTF8String[] textById = new UTF8String[0];
  private int[] codeById = new int[0];

  /** Texts of all codes together may take `mostCodeBytes`, since each value repeats them. */
  InputTexts(PackedSchema schema, int mostCodeBytes) {
    this.schema = schema;
    this.mostCodeBytes = mostCodeBytes;
    texts = new UTF8String[schema.fields][];
    code = new byte[schema.fields][];
    codes = new TextCodes[schema.fields];
    for (int k = 0; k < schema.fields; k++) if (schema.kinds.charAt(k) == 't') codes[k] = new TextCodes();
  }

  /**
   * Finds the texts of the rows. Returns which columns come as codes from now on, or null if `coded` still holds. Once
   * a column has too many or too long texts, or the texts of all codes would fill too much of a value, the column never
   * comes as codes again.
   */
  boolean[] find(InputRows rows, boolean[] coded) {
    if (sizes.length < rows.count) sizes = new long[rows.count];
    Arrays.fill(sizes, 0, rows.count, 0L);
    int codeBytes = 0;
    boolean[] changed = null;
    for (int k = 0; k < schema.fields; k++) {
      if (!schema.isText(k)) continue;
      if (coded[k]) {
        if (findCodes(rows, k) && codeBytes + codes[k].size() <= mostCodeBytes) {
          codeBytes += codes[k].size();
          continue;
        }
        if (changed == null) changed = Arrays.copyOf(coded, schema.fields);
        changed[k] = false;
      }
      findTexts(rows, k);
    }
    return changed;
  }

  /** Drops the references to the texts, which lie in memory of the rows. */
  void clear() {
    for (int k = 0; k < schema.fields; k++) if (texts[k] != null) Arrays.fill(texts[k], null);
  }

  /** Whether all rows have a code, and codes are worthwhile. */
  private boolean findCodes(InputRows rows, int k) {
    if (code[k] == null || code[k].length < rows.count) code[k] = new byte[rows.count];
    ColumnVector column = rows.columns[k];
    boolean isBinary = schema.isBinary(k), hasNull = column.hasNull();
    WritableColumnVector ids = isBinary ? null : idsOf(column);
    byte[] own = code[k];
    TextCodes known = codes[k];
    StagedRows.Column staged = column instanceof StagedRows.Column ? (StagedRows.Column) column : null;
    stamp++;
    for (int i = 0; i < rows.count; i++) {
      int place = rows.place(k, i), found = 0;
      if (hasNull && column.isNullAt(place)) {
        // any code will do
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

  private void findTexts(InputRows rows, int k) {
    if (texts[k] == null || texts[k].length < rows.count) texts[k] = new UTF8String[rows.count];
    ColumnVector column = rows.columns[k];
    boolean isBinary = schema.isBinary(k), hasNull = column.hasNull();
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

  /** The ids of the column's texts in its Parquet dictionary, or null if it has none. Each text is looked at only once. */
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
}
