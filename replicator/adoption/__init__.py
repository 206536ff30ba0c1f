"""Taking over from another copier: prove what it left on the target, then go on behind it (decision 0027).

`connect` and `mirrormaker` decode what such tools write down about themselves: hints, never proof. `reading` walks both
logs into `digests`, `alignment` lays the one over the other, `verdict` names whatever is not an exact copy. What was
proved goes to the ledger as the `foreign` part of a partition's map, when a worker obeys the order to adopt
(`replicator.recovery.operator_decisions`).
"""
