"""Conditions and values that callers give: read into one tree, and evaluated on statistics, on rows, or by a tool."""
