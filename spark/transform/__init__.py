"""Flows with `transform`: expressions are judged, and applied to records, by Spark (docs/transform.md)."""
