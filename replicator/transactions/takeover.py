"""Taking partitions over that are copied in transactions: fence, read the ledger, look at the source, go on.

The order is what makes it exact. `SlotSender.open` ends whatever the owner before us had open, one way or the other;
only then is the ledger read, and what it says cannot change any more except through us.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from clusters.errors import ClusterError, TopicMissing, Unauthorised
from clusters.flows import FlowRecord
from clusters.settings import ConnectionSettings
from clusters.wire.messages import READ_COMMITTED, READ_UNCOMMITTED
from replicator.errors import ReplicatorError
from replicator.ledger import Ledger, read_ledger
from replicator.look import Led, Stillness, leaders
from replicator.offsetmap import Run
from replicator.partition import PartitionKey
from replicator.states import LookAgain, Loud
from replicator.transactions.answers import SessionLost
from replicator.transactions.positions import Known, Position
from replicator.transactions.senders import Senders, SlotSender

Trouble = Loud | LookAgain


@dataclass(frozen=True, slots=True)
class TakenInTransactions:
    """A partition that can go on in this session of its slot's sender. begins: the ledger does not know it yet."""

    known: Known
    begins: bool
    source: Led
    target: Led
    sender: SlotSender
    session: int


def take_over_in_transactions(
    record: FlowRecord,
    slots: Mapping[PartitionKey, int],
    source: ConnectionSettings,
    target: ConnectionSettings,
    stillness: Stillness,
    senders: Senders,
) -> dict[PartitionKey, TakenInTransactions | Trouble]:
    """Decide for partitions of one flow (with their slots) how they go on. Never raises ClusterError."""
    found: dict[PartitionKey, TakenInTransactions | Trouble] = {}
    sessions: dict[int, tuple[SlotSender, int]] = {}
    for slot, opened in _opened(record, set(slots.values()), senders).items():
        if isinstance(opened, tuple):
            sessions[slot] = opened
        else:
            found |= {key: opened for key, at in slots.items() if at == slot}
    keys = [key for key, slot in slots.items() if slot in sessions]
    if not keys:
        return found
    try:
        ledger = read_ledger(target, flow=record.flow.id, slots=sorted(sessions))
        at_source = leaders(source, [(key.topic, key.partition) for key in keys], READ_COMMITTED)
        at_target = leaders(target, [(key.target_topic, key.partition) for key in keys], READ_UNCOMMITTED)
    except (ClusterError, ReplicatorError) as error:
        return {key: LookAgain(str(error)) for key in slots}
    for key in keys:
        here, there = at_source[key.topic, key.partition], at_target[key.target_topic, key.partition]
        if isinstance(here, ClusterError):
            found[key] = _trouble(here, source.alias)
        elif isinstance(there, ClusterError):
            found[key] = _trouble(there, source.alias)
        else:
            sender, session = sessions[slots[key]]
            still = stillness.settled(key, "source", here.end, time.monotonic())
            decided = decide(key, ledger, here, there, record.flow.start, still)
            found[key] = (
                TakenInTransactions(*decided, here, there, sender, session) if isinstance(decided, tuple) else decided
            )
    return found


def decide(
    key: PartitionKey, ledger: Ledger, here: Led, there: Led, start: str, still: bool
) -> tuple[Known, bool] | Trouble:
    """Where a partition goes on, and whether it begins. `still`: the source's end did not move for long."""
    known = ledger.positions.get(key)
    if known is None:
        if key in ledger.partitions:
            return LookAgain("the ledger knows this partition as copied by sequence numbers")
        position = here.start if start == "earliest" else here.end
        begun = Position(key, here.topic_id, there.topic_id, Run(there.end, position), position)
        return Known(begun), True
    at = known.position
    if at.target_id != there.topic_id:
        return Loud("target_gone", f"the target topic has id {there.topic_id}, the ledger {at.target_id}")
    if at.source_id != here.topic_id:
        return Loud("source_recreated", f"the source topic has id {here.topic_id}, the ledger {at.source_id}")
    if at.position < here.start:
        return Loud(
            "source_expired",
            f"source offsets {at.position} to {here.start - 1} are gone: the log now starts at {here.start}",
        )
    if at.position > here.end and not still:
        return LookAgain(f"the source's log ends at {here.end}, below {at.position}: it may still be recovering")
    if at.position > here.end:
        return Loud("source_truncated", f"the source is copied through {at.position}, but its log ends at {here.end}")
    return known, False


def _opened(record: FlowRecord, slots: Iterable[int], senders: Senders) -> dict[int, tuple[SlotSender, int] | Trouble]:
    """Open all sessions at once: each waits for its coordinator."""

    def opened(slot: int) -> tuple[SlotSender, int] | Trouble:
        try:
            sender = senders.of(record, slot)
            return sender, sender.open()
        except SessionLost as lost:
            return lost.trouble
        except Unauthorised as error:
            return Loud("unauthorised", str(error))
        except ClusterError as error:
            return LookAgain(str(error))

    ordered = sorted(slots)
    with ThreadPoolExecutor(max_workers=8, thread_name_prefix="open") as pool:
        return dict(zip(ordered, pool.map(opened, ordered), strict=True))


def _trouble(error: ClusterError, source_alias: str) -> Trouble:
    if isinstance(error, TopicMissing):
        # A broker that has not heard of a new topic yet says the same.
        return LookAgain(str(error), "source_gone" if error.alias == source_alias else "target_gone")
    if isinstance(error, Unauthorised):
        return Loud("unauthorised", str(error))
    return LookAgain(str(error))
