"""Foreign replication configuration in and out: what can be said in both languages, and a list of what cannot."""
