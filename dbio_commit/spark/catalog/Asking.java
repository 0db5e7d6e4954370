package dbio_commit;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.classic.SparkSession$;
import org.apache.spark.sql.connector.catalog.CatalogV2Implicits;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.Seq;

/**
 * How `Questions` asks the Python process of this driver: over the Bridge that `dbio.enable` has put into the system
 * properties.
 */
class Asking {
  private static final String BRIDGE = "dbio_commit.catalog", TOPIC = "catalog"; // as in `answers.py`

  static SparkSession session() {
    return (SparkSession) SparkSession$.MODULE$.active();
  }

  static Object ask(String verb, Object[] given) {
    return ask(session(), verb, given);
  }

  /**
   * The answer: an object that Python puts into `asked[0]`, or a text; null for an empty one.
   *
   * Python gets the verb, the id of the session and the arguments as one text, as each call between the two takes time.
   * The objects among the arguments, and a session that it does not know, it takes out of `asked`.
   */
  static Object ask(SparkSession session, String verb, Object[] given) {
    Function bridge = (Function) System.getProperties().get(BRIDGE);
    if (bridge == null) {
      throw new IllegalStateException("dbio_commit.UnsupportedStoreError: SQL on dbio tables is answered by the Python"
          + " process of the Spark driver, and none has called dbio.enable(spark) here; call it in a classic PySpark"
          + " session, or use the functions of dbio_commit, such as dbio.read");
    }
    List objects = new ArrayList(Arrays.asList(new Object[] {null, session}));
    List question = Arrays.asList(new Object[] {verb, session.sessionUUID(), inText(given, objects)});
    Object[] asked = objects.toArray();
    String text = (String) bridge.apply(new Object[] {TOPIC, json(question), asked});
    if (asked[0] instanceof Throwable) Platform.throwException((Throwable) asked[0]);
    return asked[0] != null ? asked[0] : text.isEmpty() ? null : text;
  }

  /** An argument as it is in the text. Objects of the JVM are added to a list, and the text has their places in it. */
  private static Object inText(Object value, List objects) {
    if (value == null || value instanceof String || value instanceof Number || value instanceof Boolean) return value;
    if (value instanceof StructType) return ((StructType) value).json();
    if (value instanceof Parts) return inText(((Parts) value).all, objects);
    if (value instanceof Map) {
      Map found = new LinkedHashMap((Map) value);
      found.values().removeAll(Collections.singleton(null)); // an option that is null is not given
      return found;
    }
    if (value instanceof Object[]) {
      Object[] all = (Object[]) value;
      List found = new ArrayList();
      for (int i = 0; i < all.length; i++) found.add(inText(all[i], objects));
      return found;
    }
    objects.add(value);
    return Integer.valueOf(objects.size() - 1);
  }

  /** Several values that are one argument. */
  static class Parts {
    private final Object[] all;

    Parts(Object[] all) { this.all = all; }
  }

  private static String json(Object value) {
    try {
      return JSON.writeValueAsString(value);
    } catch (JsonProcessingException e) {
      throw new IllegalStateException(e);
    }
  }

  private static final ObjectMapper JSON = new ObjectMapper()
      .configure(JsonGenerator.Feature.QUOTE_NON_NUMERIC_NUMBERS, false); // Python reads NaN as a number

  /** A value of Spark's rows as Python gets it. */
  static Object plain(Object value) {
    if (value instanceof UTF8String) return value.toString();
    if (!(value instanceof ArrayData)) return value;
    Object[] texts = ((ArrayData) value).toObjectArray(DataTypes.StringType); // procedures have arrays of texts only
    for (int i = 0; i < texts.length; i++) texts[i] = texts[i] == null ? null : texts[i].toString();
    return texts;
  }

  /** The texts in a text with zero bytes between them. */
  static String[] split(Object text) {
    return text == null || ((String) text).isEmpty() ? new String[0] : ((String) text).split("\0");
  }

  static Identifier identifier(String[] parts) { // Janino knows no Identifier.of
    return new CatalogV2Implicits.MultipartIdentifierHelper((Seq) ArraySeq$.MODULE$.unsafeWrapArray(parts)).asIdentifier();
  }
}
