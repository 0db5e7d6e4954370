package dbio_commit;

import java.util.Collections;
import java.util.Iterator;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataType$;
import org.apache.spark.sql.types.StructType;

/** A procedure of `procedures.py`, which runs it, and returns its rows as a DataFrame. */
public class Procedure implements UnboundProcedure, BoundProcedure {
  private final String catalog;
  private final String name;
  private final String description;
  private final ProcedureParameter[] parameters;

  /** After the description, `described` has a name, a type, a default ("" for none) and a comment for each parameter. */
  Procedure(String catalog, String name, String[] described) {
    this.catalog = catalog;
    this.name = name;
    description = described[0];
    parameters = new ProcedureParameter[described.length / 4];
    for (int i = 0; i < parameters.length; i++) {
      DataType type = DataType$.MODULE$.fromDDL(described[4 * i + 2]);
      ProcedureParameter.Builder builder = builder(described[4 * i + 1], type).comment(described[4 * i + 4]);
      if (!described[4 * i + 3].isEmpty()) builder.defaultValue(described[4 * i + 3]);
      parameters[i] = builder.build();
    }
  }

  private static ProcedureParameter.Builder builder(String name, DataType type) {
    try { // Janino calls no static method of an interface
      return (ProcedureParameter.Builder) ProcedureParameter.class
          .getMethod("in", new Class[] {String.class, DataType.class}).invoke(null, new Object[] {name, type});
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  public String name() { return name; }
  public String description() { return description; }
  public BoundProcedure bind(StructType given) { return this; }
  public boolean isDeterministic() { return false; }
  public ProcedureParameter[] parameters() { return parameters; }

  public Iterator call(InternalRow given) {
    Object[] arguments = new Object[parameters.length];
    for (int i = 0; i < arguments.length; i++) {
      DataType type = parameters[i].dataType();
      arguments[i] = given.isNullAt(i) ? null : Asking.plain(given.get(i, type));
    }
    Dataset frame = Questions.call(catalog, name, arguments);
    return Collections.singletonList(new Result(frame.schema(), frame.queryExecution().executedPlan().executeCollect()))
        .iterator();
  }

  /** Rows in memory, as Spark wants those of a procedure. */
  private static class Result implements LocalScan {
    private final StructType schema;
    private final InternalRow[] rows;

    Result(StructType schema, InternalRow[] rows) {
      this.schema = schema;
      this.rows = rows;
    }

    public StructType readSchema() { return schema; }
    public InternalRow[] rows() { return rows; }
  }
}
