"""`offsets: aligned`: every record has the same offset on the target as on the source (docs/research/aligned-mode.md).

An empty target partition is filled up to the source's log start, then copied so that every batch gets the source's own
offsets; what the source has no records for (markers, aborted and compacted records) is filled with what no consumer
sees. The log's end is the whole state: whatever happens, an inspection of it says where to go on.
"""
