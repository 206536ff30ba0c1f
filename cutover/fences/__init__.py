"""Keeping producers out of the source, and naming those who write all the same."""
