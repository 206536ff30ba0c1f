"""A rehearsal of one wave on copies of its topics: real clusters, workers, proofs and rights; own applications."""
