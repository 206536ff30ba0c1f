"""The data plane: copies record batches from one cluster to another, exactly once, and keeps the ledger of it."""
