"""One chain of entries a topology, on the target cluster."""
