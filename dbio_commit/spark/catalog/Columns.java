package dbio_commit;

import java.util.HashSet;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Columns of reads, whose names are compared without regard to case. */
class Columns {
  /** The columns, with the types that a table records for them. */
  static StructType typed(StructType columns, StructType recorded) {
    StructField[] found = new StructField[columns.length()];
    for (int i = 0; i < found.length; i++) {
      StructField own = field(recorded, columns.fields()[i].name());
      found[i] = own == null ? columns.fields()[i] : own;
    }
    return new StructType(found);
  }

  static StructType without(StructType columns, String[] names) {
    Set left = new HashSet();
    for (int i = 0; i < names.length; i++) left.add(names[i].toLowerCase(Locale.ROOT));
    StructType found = new StructType();
    for (int i = 0; i < columns.length(); i++) {
      if (!left.contains(columns.fields()[i].name().toLowerCase(Locale.ROOT))) found = found.add(columns.fields()[i]);
    }
    return found;
  }

  static StructField field(StructType columns, String name) {
    for (int i = 0; i < columns.length(); i++) if (columns.fields()[i].name().equalsIgnoreCase(name)) return columns.fields()[i];
    return null;
  }
}
