"""dbio tables in Spark's SQL: the catalog `dbio` of `dbio.enable`, and `dbio.register` for Spark without dbio.

Spark asks `Catalog.java` for tables, and `Reading.java` makes Spark's own reader read them. Both ask this process over
the bridge, and `answers` answers: `roots` finds the place of a name, and `tables` reads a snapshot for a query.
"""
