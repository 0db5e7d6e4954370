package dbio_commit;

import java.io.Serializable;
import java.util.ArrayList;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Generator;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.AbstractIterator;
import scala.collection.IterableOnce;
import scala.collection.Iterator$;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.collection.immutable.$colon$colon;

/**
 * A generator (like `explode`) that takes all rows of a task, and gives the values that a `Packer` makes of them. The
 * operator `PackColumns` runs it, and reads the columns of a scan directly if it can.
 */
public class PackRows extends Expression implements Generator, Serializable {
  /** Version of the form of values, and of the constructor. `jvm.py` has the same. */
  public static final String VERSION = "5 for Scala 2.13";

  private final Seq<Expression> columns;
  private final String kinds;
  private final String together;
  private final int valueBytes;
  private final int nullBytes;
  private Seq patterns = new $colon$colon(TreePattern.GENERATOR(), Nil$.MODULE$);

  // The state of a task. Each task has its own copy of this expression.
  private transient UnsafeProjection projection;
  private transient boolean projected;
  private transient StagedRows staged;
  private transient Staged rows;
  private transient Packer packer;

  /**
   * `kinds` has a letter for each column, see `PackedSchema`. `together` has a `g` for each column by which rows are
   * grouped. A value ends at about `valueBytes`, and a null stands for `nullBytes` of it.
   */
  public PackRows(Seq<Expression> columns, String kinds, String together, int valueBytes, int nullBytes) {
    this.columns = columns;
    this.kinds = kinds;
    this.together = together;
    this.valueBytes = valueBytes;
    this.nullBytes = nullBytes;
  }

  // --- an expression of Catalyst ---

  public Seq children() {
    return columns;
  }

  public TreeNode withNewChildrenInternal(IndexedSeq changed) {
    return new PackRows(changed, kinds, together, valueBytes, nullBytes);
  }

  public Seq nodePatterns() {
    return patterns;
  }

  public void org$apache$spark$sql$catalyst$expressions$Generator$_setter_$nodePatterns_$eq(Seq found) {
    patterns = found;
  }

  public StructType elementSchema() {
    return new StructType().add("packed", DataTypes.BinaryType, true);
  }

  public DataType dataType() {
    return new ArrayType(elementSchema(), true);
  }

  public boolean nullable() {
    return false;
  }

  public boolean foldable() {
    return false;
  }

  public boolean supportCodegen() {
    return false;
  }

  public ExprCode doGenCode(CodegenContext context, ExprCode code) {
    throw new UnsupportedOperationException("pack_rows is a generator without generated code");
  }

  public String prettyName() {
    return "pack_rows";
  }

  public int productArity() {
    return 5;
  }

  public Object productElement(int position) {
    switch (position) {
      case 0: return columns;
      case 1: return kinds;
      case 2: return together;
      case 3: return Integer.valueOf(valueBytes);
      default: return Integer.valueOf(nullBytes);
    }
  }

  public boolean canEqual(Object other) {
    return other instanceof PackRows;
  }

  // --- rows in ---

  public IterableOnce eval(InternalRow row) {
    if (packer == null) prepare();
    UnsafeRow whole = inOnePiece(row);
    if (staged.hasRoomFor(whole)) {
      staged.add(whole);
      return Iterator$.MODULE$.empty();
    }
    pack();
    staged.add(whole);
    return new Packed(packer);
  }

  public IterableOnce terminate() {
    if (packer == null) return Iterator$.MODULE$.empty();
    pack();
    packer.finish();
    return new Packed(packer);
  }

  private void prepare() {
    int fields = columns.size();
    for (int k = 0; k < fields; k++) {
      Expression column = (Expression) columns.apply(k);
      projected |= !(column instanceof BoundReference) || ((BoundReference) column).ordinal() != k;
    }
    staged = new StagedRows(types());
    rows = new Staged(staged, keys());
    packer = packer();
  }

  private void pack() {
    rows.count = staged.count();
    packer.add(rows);
    staged.clear();
  }

  /** The row as an UnsafeRow of exactly `columns`. Spark's optimizer may have replaced a column by an expression. */
  private UnsafeRow inOnePiece(InternalRow row) {
    if (!projected && row instanceof UnsafeRow && row.numFields() == kinds.length()) return (UnsafeRow) row;
    if (projection == null) projection = UnsafeProjection$.MODULE$.create(columns);
    return projection.apply(row);
  }

  // --- for `PackColumns` ---

  public DataType[] types() {
    DataType[] found = new DataType[columns.size()];
    for (int k = 0; k < found.length; k++) found[k] = ((Expression) columns.apply(k)).dataType();
    return found;
  }

  public boolean isKey(int k) {
    return together.charAt(k) == 'g';
  }

  /** A new packer, for the task of this thread. */
  public Packer packer() {
    return new Packer(kinds, together, types(), valueBytes, nullBytes);
  }

  /** From a row with the columns, in their order, to the columns by which rows are grouped. */
  private UnsafeProjection keys() {
    ArrayList found = new ArrayList();
    for (int k = 0; k < columns.size(); k++) {
      Expression column = (Expression) columns.apply(k);
      if (isKey(k)) found.add(new BoundReference(k, column.dataType(), column.nullable()));
    }
    return UnsafeProjection$.MODULE$.create(ArraySeq$.MODULE$.unsafeWrapArray(found.toArray()));
  }

  /** The staged rows. */
  static class Staged extends InputRows {
    private final StagedRows staged;
    private final UnsafeProjection keys;

    Staged(StagedRows staged, UnsafeProjection keys) {
      super(staged.fields());
      this.staged = staged;
      this.keys = keys;
      for (int k = 0; k < columns.length; k++) columns[k] = staged.column(k);
    }

    public UnsafeRow key(int row) {
      return keys.apply(staged.row(row));
    }
  }

  /** The values and nulls that the packer has now. */
  static class Packed extends AbstractIterator {
    private final Packer packer;

    Packed(Packer packer) {
      this.packer = packer;
    }

    public boolean hasNext() {
      return packer.hasNext();
    }

    public Object next() {
      return packer.next();
    }
  }
}
