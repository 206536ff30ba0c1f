"""What `spark.source` is made of: options, ranges, rows, and the readers and writers of `kafka-batches`."""
