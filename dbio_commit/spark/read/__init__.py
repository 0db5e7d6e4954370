"""How a snapshot becomes a DataFrame: by Spark's own reader, or by Python workers."""
