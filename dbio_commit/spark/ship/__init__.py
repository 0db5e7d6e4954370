"""How rows travel from the JVM to Python: Arrow batches of bounded size, and rows packed into values by Java classes."""
