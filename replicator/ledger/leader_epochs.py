"""The source's leader epochs as they were copied, so that a log that was truncated and has grown again is noticed.

A Fetch says the leader epoch of the last batch that was fetched; a broker whose log parted from ours below that answers
where (KIP-320). Asking with too small an epoch looks the same as a truncated log, so an entry is in the ledger before
the first batch behind it is sent; an unknown epoch (-1) is never wrong, it only notices nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class LeaderEpochEntry(NamedTuple):
    """The batch at source offset `source` is of this leader epoch, and so are those behind it until the next entry."""

    source: int
    epoch: int


def find_leader_epoch_below(epochs: Sequence[LeaderEpochEntry], position: int) -> int:
    """The leader epoch of the last batch below a source position; -1 when that is not known."""
    return max((entry for entry in epochs if entry.source < position), default=LeaderEpochEntry(0, -1)).epoch
