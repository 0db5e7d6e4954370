"""The Spark session: its settings, its connectors, its JVM and its Python workers."""
