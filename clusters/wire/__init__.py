"""Raw, authenticated connections to brokers: whole record batches in, whole record batches out."""
