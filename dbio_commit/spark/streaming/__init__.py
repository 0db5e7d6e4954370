"""Streams in and out of tables: the data source "dbio" for `writeStream` and `readStream`, and what is around it."""
