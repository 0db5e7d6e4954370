package dbio_commit;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.IntegralType;
import scala.collection.Seq;

/**
 * A condition as text, to choose files by. Wherever the condition is true, the text is true: parts that the text cannot
 * express are left out. It has comparisons of columns with literals, and, with sides, of columns with columns.
 */
class ConditionText {
  private final Seq target; // attributes; null if columns need no side
  private final Seq source;

  ConditionText(Seq target, Seq source) {
    this.target = target;
    this.source = source;
  }

  /** Null if nothing can be said. */
  static String ofAll(Seq conditions) {
    List parts = new ArrayList();
    for (int i = 0; i < conditions.size(); i++) {
      String part = new ConditionText(null, null).of((Expression) conditions.apply(i));
      if (part != null) parts.add(part);
    }
    return parts.isEmpty() ? null : String.join(" AND ", parts);
  }

  String of(Expression it) {
    return of(it, false);
  }

  /** Null if it cannot be said. If `exactly`, also the opposite of the text must hold wherever that of the condition does. */
  private String of(Expression it, boolean exactly) {
    if (it instanceof And || it instanceof Or) {
      String left = of(child(it, 0), exactly), right = of(child(it, 1), exactly);
      if (left == null || right == null) return it instanceof Or || exactly ? null : left == null ? right : left;
      return "(" + left + (it instanceof And ? " AND " : " OR ") + right + ")";
    }
    if (it instanceof Not) {
      String inner = of(child(it, 0), true);
      return inner == null ? null : "NOT (" + inner + ")";
    }
    if (it instanceof IsNull || it instanceof IsNotNull) {
      String column = column(child(it, 0));
      return column == null ? null : column + (it instanceof IsNull ? " IS NULL" : " IS NOT NULL");
    }
    if (it instanceof EqualNullSafe && !exactly) { // true only if equal, or if both are null
      boolean isNull = child(it, 1) instanceof Literal && ((Literal) child(it, 1)).value() == null;
      String left = operand(child(it, 0)), right = isNull ? null : operand(child(it, 1));
      return left == null ? null : isNull ? left + " IS NULL" : right == null || column(child(it, 1)) != null ? null
          : left + " = " + right;
    }
    if (it instanceof In) return in(child(it, 0), ((In) it).list());
    if (it instanceof InSet) {
      Expression value = child(it, 0);
      List literals = new ArrayList();
      Object[] all = (Object[]) ((InSet) it).hset().toArray(scala.reflect.ClassTag$.MODULE$.Object());
      for (int i = 0; i < all.length; i++) literals.add(Literal$.MODULE$.create(all[i], value.dataType()));
      return in(value, literals);
    }
    String operator = operator(it);
    if (operator != null) {
      String left = operand(child(it, 0)), right = operand(child(it, 1));
      return left == null || right == null ? null : left + operator + right;
    }
    return it.dataType() instanceof BooleanType ? column(it) : null;
  }

  private static Expression child(Expression it, int i) { return (Expression) it.children().apply(i); }

  private static String operator(Expression it) {
    return it instanceof EqualTo ? " = " : it instanceof LessThan ? " < " : it instanceof LessThanOrEqual ? " <= "
        : it instanceof GreaterThan ? " > " : it instanceof GreaterThanOrEqual ? " >= " : null;
  }

  private String in(Expression value, Seq list) {
    List literals = new ArrayList();
    for (int i = 0; i < list.size(); i++) literals.add(list.apply(i));
    return in(value, literals);
  }

  private String in(Expression value, List literals) {
    String column = column(value);
    List texts = new ArrayList();
    for (int i = 0; i < literals.size(); i++) texts.add(literal((Expression) literals.get(i)));
    return column == null || texts.isEmpty() || texts.contains(null) ? null
        : column + " IN (" + String.join(", ", texts) + ")";
  }

  private String operand(Expression it) {
    String column = column(it);
    return column == null ? literal(it) : column;
  }

  private String column(Expression it) {
    boolean widens = it instanceof Cast && it.dataType() instanceof IntegralType
        && child(it, 0).dataType() instanceof IntegralType && it.dataType().defaultSize() >= child(it, 0).dataType().defaultSize();
    if (widens) it = child(it, 0);
    if (!(it instanceof Attribute)) return null;
    String name = SqlTable.quoted(((Attribute) it).name());
    if (target == null) return name;
    return has(target, (Attribute) it) ? "target." + name : has(source, (Attribute) it) ? "source." + name : null;
  }

  private static boolean has(Seq attributes, Attribute wanted) {
    for (int i = 0; i < attributes.size(); i++) {
      if (((Attribute) attributes.apply(i)).exprId().equals(wanted.exprId())) return true;
    }
    return false;
  }

  private static String literal(Expression it) {
    Object value;
    if (it instanceof Literal) value = ((Literal) it).value();
    else if (it instanceof Cast && child(it, 0) instanceof Literal) {
      try {
        value = it.eval(null);
      } catch (RuntimeException e) { // such as a text that is no number: the query will say so, if it comes to that
        return null;
      }
    } else return null;
    if (value == null) return null;
    String text = Literal$.MODULE$.create(value, it.dataType()).sql();
    return text.indexOf('\\') >= 0 || text.indexOf('"') >= 0 || text.replaceAll("^[^']*'|'$", "").indexOf('\'') >= 0
        || text.indexOf("${") >= 0 || text.indexOf("--") >= 0 || text.indexOf("/*") >= 0 ? null : text;
  }
}
