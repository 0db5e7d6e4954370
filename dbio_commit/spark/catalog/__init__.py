"""dbio tables in Spark's SQL: the catalog `dbio` of `dbio.enable`, and `dbio.register` for Spark without dbio.

Spark asks `Catalog.java` for tables, and `Reading.java` makes Spark's own reader read them. What they ask this process
is listed in `Questions.java`, and again in `questions`: `roots` finds the place of a name, and `tables` reads a
snapshot for a query.
"""
