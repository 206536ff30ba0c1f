"""What a run leaves for people: the pack, its page, and the proofs in it."""
