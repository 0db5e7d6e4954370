"""What a stream reads next: the history of a table, commit by commit."""
