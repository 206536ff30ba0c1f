"""The real action handler: answers the questions of `cutover.actions` from clusters and applications."""
