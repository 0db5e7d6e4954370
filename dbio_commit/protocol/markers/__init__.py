"""Markers: the small objects that decide what a table is. One module for the body of each. Pure."""
