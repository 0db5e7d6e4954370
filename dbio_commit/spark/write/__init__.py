"""From a DataFrame to new data files."""
