"""Copies that another tool made: where their records stand on the source is inferred."""
