"""How a transaction begins, takes its turn and is decided."""
