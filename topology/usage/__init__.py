"""How much clusters were used, from where the estate keeps that: throughput, partitions and logs over weeks. From it,
how large the target and the fleet must be, how far a copy falls behind, and what the user's prices make of it.

Pure: `clusters.usage` asks the sources.
"""
