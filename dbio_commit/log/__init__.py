"""What the log of a table says: its listing, its settled state, and the snapshot that a reader gets."""
