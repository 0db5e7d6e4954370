package dbio_commit;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.TableChange;
// since org.apache.spark.sql.connector.catalog.constraints.Check:
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.constraints.Check;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;
// end
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** What CREATE, REPLACE and ALTER TABLE say about a table, in the form in which Python takes it: see `creation.py`. */
class Definition {
  private static final String CLUSTER_BY = "cluster_by";
  private static final String DEFAULT = "CURRENT_DEFAULT"; // as Spark has it in the metadata of a column

  StructType columns = new StructType(); // of a new table, or those that are added
  String[] partitionColumns = {};
  final Map settings = new HashMap(); // an empty text removes one
  final Map comments = new HashMap(); // by column, or by the path of a field with zero bytes between the names

  static Definition of(Column[] columns, Transform[] partitions, Map properties) {
    Definition found = new Definition();
    found.settings.putAll(properties);
    StructType known = CatalogV2Util.v2ColumnsToStructType(columns);
    for (int i = 0; i < columns.length; i++) {
      Column column = columns[i];
      found.add(column.name(), known.fields()[i], column.comment());
      if (!column.nullable()) found.settings.put("not_null." + column.name(), "true");
      Metadata own = known.fields()[i].metadata();
      if (own.contains(DEFAULT)) found.settings.put("default." + column.name(), own.getString(DEFAULT));
      if (column.generationExpression() != null) {
        found.settings.put("generated." + column.name(), column.generationExpression());
      }
    }
    List by = new ArrayList();
    for (int i = 0; i < partitions.length; i++) {
      if (partitions[i].name().equals("cluster_by")) { // CLUSTER BY, since Spark 4.0
        found.settings.put(CLUSTER_BY, listOf(partitions[i].references()));
        continue;
      }
      if (!partitions[i].name().equals("identity")) {
        throw refused("a dbio table is partitioned by columns only, and not by " + partitions[i].describe()
            + ": make a generated column of it, and partition by that");
      }
      by.add(String.join(".", partitions[i].references()[0].fieldNames()));
    }
    found.partitionColumns = (String[]) by.toArray(new String[0]);
    return found;
  }

  static Definition of(TableChange[] changes) {
    Definition found = new Definition();
    for (int i = 0; i < changes.length; i++) found.add(changes[i]);
    return found;
  }

  private void add(TableChange change) {
    if (change instanceof TableChange.SetProperty) {
      if (((TableChange.SetProperty) change).property().equals("location")) {
        throw refused("the place of a table does not change: copy it with `dbio copy`, and give the copy a name");
      }
      settings.put(((TableChange.SetProperty) change).property(), ((TableChange.SetProperty) change).value());
    } else if (change instanceof TableChange.RemoveProperty) {
      settings.put(((TableChange.RemoveProperty) change).property(), "");
    } else if (change instanceof TableChange.AddColumn && isPlain((TableChange.AddColumn) change)) {
      TableChange.AddColumn column = (TableChange.AddColumn) change;
      add(column.fieldNames()[0], new StructField("", column.dataType(), true, Metadata.empty()), column.comment());
    } else if (change instanceof TableChange.UpdateColumnComment) {
      TableChange.UpdateColumnComment one = (TableChange.UpdateColumnComment) change;
      comments.put(String.join("\0", one.fieldNames()), one.newComment() == null ? "" : one.newComment());
    } else if (change instanceof TableChange.UpdateColumnNullability) {
      TableChange.UpdateColumnNullability one = (TableChange.UpdateColumnNullability) change;
      settings.put("not_null." + columnOf(one.fieldNames()), one.nullable() ? "" : "true");
    } else if (change instanceof TableChange.UpdateColumnDefaultValue) {
      TableChange.UpdateColumnDefaultValue one = (TableChange.UpdateColumnDefaultValue) change;
      String sql = one.newDefaultValue();
      settings.put("default." + columnOf(one.fieldNames()), sql == null ? "" : sql);
    // since org.apache.spark.sql.connector.expressions.ClusterByTransform:
    } else if (change instanceof TableChange.ClusterBy) {
      settings.put(CLUSTER_BY, listOf(((TableChange.ClusterBy) change).clusteringColumns()));
    // end
    // since org.apache.spark.sql.connector.catalog.constraints.Check:
    } else if (change instanceof TableChange.DropConstraint) {
      TableChange.DropConstraint one = (TableChange.DropConstraint) change;
      settings.put("check." + one.name(), one.ifExists() ? "" : "\0"); // zero: it must be there
    // end
    } else {
      throw refused("ALTER TABLE of a dbio table adds columns that may be null, at the end, and changes comments, defaults, constraints"
          + " and properties; for another change, overwrite the table with dbio.write(df, path, mode='overwrite')");
    }
  }

  private void add(String name, StructField field, String comment) {
    StructField one = new StructField(name, field.dataType(), true, Metadata.empty());
    columns = columns.add(comment == null ? one : one.withComment(comment));
  }

  // since org.apache.spark.sql.connector.catalog.constraints.Check:
  static Definition of(TableInfo info) {
    Definition found = of(info.columns(), info.partitions(), info.properties());
    found.add(info.constraints());
    return found;
  }

  /** Of ALTER TABLE … ADD CONSTRAINT, whose constraint is an expression of Spark's analyzer. */
  static Definition ofCheck(Object constraint) {
    Definition found = new Definition();
    try {
      found.add(new Constraint[] {
          (Constraint) constraint.getClass().getMethod("toV2Constraint", new Class[0]).invoke(constraint, new Object[0])});
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
    return found;
  }

  private void add(Constraint[] constraints) {
    for (int i = 0; i < constraints.length; i++) {
      if (!(constraints[i] instanceof Check)) {
        throw refused("the constraints of a dbio table are NOT NULL and CHECK, and not " + constraints[i].toDDL());
      }
      if (!constraints[i].enforced()) throw refused("a CHECK of a dbio table is enforced: leave NOT ENFORCED out");
      settings.put("check." + nameOf(constraints[i].name()),
          ((Check) constraints[i]).predicateSql());
    }
  }
  // end

  /** Spark names a CHECK without a name by its table, whose name may be a path. */
  private static String nameOf(String given) {
    int generated = given.lastIndexOf("_chk_");
    return generated >= 0 && given.indexOf('/') >= 0 ? given.substring(generated + 1) : given;
  }

  /** The columns of CLUSTER BY as a list in JSON; empty for CLUSTER BY NONE. */
  private static String listOf(NamedReference[] columns) {
    java.util.StringJoiner found = new java.util.StringJoiner(", ", "[", "]");
    for (int i = 0; i < columns.length; i++) {
      String name = String.join(".", columns[i].fieldNames());
      found.add("\"" + name.replace("\\", "\\\\").replace("\"", "\\\"") + "\"");
    }
    return columns.length == 0 ? "" : found.toString();
  }

  private static boolean isPlain(TableChange.AddColumn column) {
    return column.fieldNames().length == 1 && column.isNullable() && column.position() == null
        && column.defaultValue() == null;
  }

  private static String columnOf(String[] names) {
    if (names.length > 1) throw refused("constraints and defaults are of columns, and not of fields in them");
    return names[0];
  }

  static IllegalStateException refused(String message) {
    return new IllegalStateException("dbio_commit.InvalidInputError: " + message);
  }
}
