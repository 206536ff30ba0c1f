"""From what was observed and read to a verdict."""
