"""Hooks: what a run calls of yours, and how (docs/hooks.md)."""
