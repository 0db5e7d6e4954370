package dbio_commit;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableOrView;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.DescribeColumn;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;

/**
 * For a server, whose clients see only the texts of errors: if Spark does not know a statement, and another format does,
 * the error says what to type for a dbio table. Python knows that, see `other_formats.py`.
 */
public class Advice extends AbstractFunction2 {
  /** For all sessions that the application makes from now on. */
  public static void addTo(SparkSession session) {
    session.extensions().injectParser(new Advice());
    session.extensions().injectPostHocResolutionRule(new Rules());
  }

  public Object apply(Object session, Object parser) {
    return Proxy.newProxyInstance(ParserInterface.class.getClassLoader(), new Class[] {ParserInterface.class},
        new Parser((SparkSession) session, parser));
  }

  /** A proxy, since the methods of Spark's parsers differ between its versions. */
  private static class Parser implements InvocationHandler {
    private final SparkSession session;
    private final Object parser;

    Parser(SparkSession session, Object parser) {
      this.session = session;
      this.parser = parser;
    }

    public Object invoke(Object proxy, Method method, Object[] given) throws Throwable {
      try {
        return method.invoke(parser, given);
      } catch (InvocationTargetException e) {
        Throwable error = e.getCause();
        boolean isOfStatement = error instanceof ParseException && given != null && given[0] instanceof String;
        String advice = isOfStatement ? Questions.advice(session, (String) given[0]) : null;
        // Spark shows the statement at the end of the message.
        throw advice == null ? error : ((ParseException) error).withCommand(given[0] + "\n\n" + advice);
      }
    }
  }

  private static class Rules extends AbstractFunction1 {
    public Object apply(Object session) { return new Described((SparkSession) session); }
  }

  /** DESCRIBE HISTORY and DESCRIBE DETAIL, in which Spark takes the word for a table, and the name for one of its columns. */
  public static class Described extends Rule {
    private final SparkSession session;

    public Described(SparkSession session) { this.session = session; }

    public TreeNode apply(TreeNode plan) {
      if (!(plan instanceof DescribeColumn)) return plan;
      LogicalPlan relation = ((DescribeColumn) plan).relation();
      if (!(relation instanceof UnresolvedTableOrView)) return plan;
      String word = String.valueOf(((UnresolvedTableOrView) relation).multipartIdentifier().mkString("."));
      String advice = Questions.advice(session, "DESCRIBE " + word + " " + ((Expression) ((DescribeColumn) plan).column()).sql());
      if (advice != null) throw new IllegalStateException("dbio_commit.InvalidInputError: there is no table " + word + ". " + advice);
      return plan;
    }
  }
}
