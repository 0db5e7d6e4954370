"""How rows travel between the JVM and Python."""
