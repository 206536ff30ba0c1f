"""Taking over from another copier: prove what it left on the target, then go on behind it (decision 0027).

`mirrormaker_reader` and `mirrormaker_format` read what such a tool writes about itself: hints, never proof.
`digest_reader` reads both logs into `log_digests`, `log_alignment` compares them, `copy_findings` names whatever is not
an exact copy. A proved copy goes to the ledger as the `foreign` part of a partition's map, when a worker applies the
decision to adopt (`replicator.recovery.operator_decisions`)."""
