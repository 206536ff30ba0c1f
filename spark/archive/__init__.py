"""Topics in a folder: record batches as stored, in Parquet, with a sealed manifest; and back into a cluster."""
