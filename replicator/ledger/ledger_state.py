"""What the ledger holds of one partition, as the judgement of the logs needs it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from watershed.replicator.ledger.leader_epochs import LeaderEpochEntry
from watershed.replicator.ledger.offset_map import OffsetMap
from watershed.replicator.partition_key import ProducerIdentity


@dataclass(frozen=True, slots=True)
class LedgerState:
    """What the ledger holds of a partition. `map` covers everything that was ever announced for it.

    epochs: the source's leader epochs as they were copied, by offset. since: the producer epoch from which on runs
    count; what older ones described was given up by an order to reseed. order, note: the newest order that was obeyed.
    needs_epoch: its producer epoch must not be shared (`replicator.recovery.producer_epochs`). closed: all who wrote
    under it said that nothing of theirs is under way. last_epoch: the highest producer epoch that was ever begun.
    after: the producer epoch that this one follows, those between never counted; -1 where none was left out. adopted:
    the order by which it goes on behind what another tool copied (`replicator.adoption`), if any. without_newest: what
    counts if nothing ever landed under this one; None where nothing else could. filling: nothing but filler was written
    under this producer epoch (`replicator.copy.aligned`); given_up: an order gave up what the source held below this
    offset. stood_at: the target's log ended there once, under this producer epoch.
    """

    map: OffsetMap
    identity: ProducerIdentity
    source_id: uuid.UUID
    target_id: uuid.UUID
    epochs: tuple[LeaderEpochEntry, ...] = ()
    since: int = 0
    order: str = ""
    note: str = ""
    needs_epoch: bool = False
    closed: bool = False
    last_epoch: int = 0
    after: int = -1
    adopted: str = ""
    without_newest: Callable[[], LedgerState] | None = field(default=None, compare=False, repr=False)
    filling: bool = False
    given_up: int = -1
    stood_at: int = field(default=0, compare=False)  # grows with each takeover
