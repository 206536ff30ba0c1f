"""Ranges of partitions as batches, digests, fingerprints and sums: what runs in Spark's tasks."""
