"""Exactly once beside other writers: record batches, the position and the offset map in one transaction.

See docs/decisions/0019-transactions.md.
"""
