package dbio_commit;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression$;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;

/** An expression of an analysed statement, for Python. `planned.py` has the same methods. */
public class Piece {
  private final Expression expression;
  private final ConditionText texts;

  Piece(Expression expression, ConditionText texts) {
    this.expression = expression;
    this.texts = texts;
  }

  public Expression expression() { return expression; }
  public String sql() { return expression.sql(); }
  public String type() { return expression.dataType().json(); }
  public boolean isDeterministic() { return expression.deterministic(); }
  public boolean readsTables() { return SubqueryExpression$.MODULE$.hasSubquery(expression); }

  /** The id of the column that it is; "" if it is another expression. */
  public String id() {
    return expression instanceof AttributeReference ? ((AttributeReference) expression).exprId().toString() : "";
  }

  /** What follows from the condition, in SQL; "" if nothing does. */
  public String text() {
    String text = texts.of(expression);
    return text == null ? "" : text;
  }

  /** The names of the columns that it uses, with a zero byte between them. */
  public String columns() {
    StringBuilder names = new StringBuilder();
    scala.collection.Iterator all = expression.references().iterator();
    while (all.hasNext()) names.append(names.length() == 0 ? "" : "\0").append(((Attribute) all.next()).name());
    return names.toString();
  }

  /** The value of an assignment, without the cast to the type of its column that Spark has added. */
  static Expression valueOf(Assignment assignment) {
    Expression value = (Expression) assignment.productElement(1);
    boolean isAdded = value instanceof Cast && value.getTagValue(Cast.BY_TABLE_INSERTION()).isDefined();
    return isAdded ? (Expression) value.children().head() : value;
  }

  /** The column that an assignment sets, or a field of which it sets. */
  static Expression columnOf(Assignment assignment) {
    Expression key = (Expression) assignment.productElement(0);
    while (key instanceof GetStructField) key = (Expression) key.children().head();
    return key;
  }

  /** The name of the column that an assignment sets, or the names on the way to a field, with a zero byte between them. */
  static String keyOf(Assignment assignment) { return keyOf((Expression) assignment.productElement(0)); }

  private static String keyOf(Expression key) {
    if (key instanceof AttributeReference) return ((AttributeReference) key).name();
    if (key instanceof GetStructField) {
      GetStructField field = (GetStructField) key;
      return keyOf((Expression) key.children().head()) + "\0" + field.extractFieldName();
    }
    throw new IllegalStateException("dbio_commit.InvalidInputError: " + key.sql()
        + " is neither a column nor a field of one, so it cannot be set; give the whole column a value");
  }
}
