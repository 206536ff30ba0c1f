"""How partitions are copied: several batches in flight, or one at a time."""

from __future__ import annotations

from typing import Any

_COPYING = ("running", "catching_up")


def describe_single_batch_mode(flow: dict[str, Any]) -> str:
    """What to tell of a flow's partitions in the old regime; "" when there are none. There the newest record written is
    so old that brokers may forget our sequence numbers: one batch is in flight, and a takeover waits."""
    copying = [row for row in flow["partitions"] if row["state"] in _COPYING]
    old = sum(not row["young"] and row["target_end"] > 0 for row in copying)  # an empty one has nothing to forget
    if not old:
        return ""
    return (
        f"{old} of {len(copying)} partitions: one batch in flight, and slower takeovers, until their records are newer "
        "than the target's producer.id.expiration.ms"
    )
