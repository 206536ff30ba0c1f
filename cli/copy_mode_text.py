"""How partitions are copied: several batches in flight, or one at a time."""

from __future__ import annotations

from typing import Any

_COPYING = ("running", "catching_up")


def describe_single_batch_mode(flow: dict[str, Any]) -> str:
    """Counts partitions that send one batch at a time; "" when there are none. Their newest record is older than
    producer.id.expiration.ms, so the broker may have dropped our producer state: a takeover has to wait."""
    copying = [row for row in flow["partitions"] if row["state"] in _COPYING]
    old = sum(not row["young"] and row["target_end"] > 0 for row in copying)  # an empty log has no producer state
    if not old:
        return ""
    return (
        f"{old} of {len(copying)} partitions: one batch in flight, and slower takeovers, until their records are newer "
        "than the target's producer.id.expiration.ms"
    )
