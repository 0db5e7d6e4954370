"""Passes rows from the JVM to Python: in Arrow batches of bounded size, packed into values by Java classes."""
