"""What is done with a table besides reading and writing it."""
