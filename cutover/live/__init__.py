"""The real world: answers the questions of `cutover.actions` from clusters and applications."""
