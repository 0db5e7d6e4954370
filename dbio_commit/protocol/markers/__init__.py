"""The bodies of markers, the small objects that decide what a table is: one module for each kind. Pure."""
