"""Clusters: connections, administration, control topics, registries, and clusters in memory for tests."""
