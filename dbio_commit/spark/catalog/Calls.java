package dbio_commit;

import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;

/** CALL dbio.system.…: the part of `Catalog` that Spark has since 4.0. `procedures.py` has the procedures. */
abstract class Calls implements ProcedureCatalog {
  private static final String NAMESPACE = "system";

  public UnboundProcedure loadProcedure(Identifier ident) {
    boolean isHere = ident.namespace().length == 1 && ident.namespace()[0].equalsIgnoreCase(NAMESPACE);
    String name = isHere ? ident.name() : String.join(".", ident.namespace()) + "." + ident.name();
    return new Procedure(name(), name, Questions.procedure(name));
  }

  public Identifier[] listProcedures(String[] namespace) {
    boolean areHere = namespace.length == 0 || namespace.length == 1 && namespace[0].equalsIgnoreCase(NAMESPACE);
    String[] names = areHere ? Questions.procedures() : new String[0];
    Identifier[] found = new Identifier[names.length];
    for (int i = 0; i < names.length; i++) found[i] = Asking.identifier(new String[] {NAMESPACE, names[i]});
    return found;
  }
}
