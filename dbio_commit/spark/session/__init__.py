"""Works with the Spark session: its settings, paths, credentials, JVM and Python workers, and Spark's column types."""
