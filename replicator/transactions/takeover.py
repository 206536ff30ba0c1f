"""Taking partitions over that are copied in transactions: fence, read the ledger, look at the logs, go on.

The order is what makes it exact. `SlotSender.open` ends whatever the owner before us had open, one way or the other;
only then is the ledger read, and what it says cannot change any more except through us.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from clusters.control import ControlWriter
from clusters.errors import ClusterError, TopicMissing, Unauthorised
from clusters.flows import FlowRecord
from clusters.settings import ConnectionSettings
from clusters.wire.messages import READ_COMMITTED, READ_UNCOMMITTED
from replicator.epochs import Epoch
from replicator.errors import ReplicatorError
from replicator.ledger import Ledger, read_ledger
from replicator.look import Led, Stillness, diverging, leaders
from replicator.orders import Order, by_policy, journal_by_worker, journal_outcome, settled_on
from replicator.partition import PartitionKey
from replicator.states import LookAgain, Loud
from replicator.transactions.answers import SessionLost
from replicator.transactions.decide import Ends, Goes, Trouble, decide, obeyed
from replicator.transactions.positions import Known
from replicator.transactions.senders import Senders, SlotSender

_Seen = tuple[Led, Led, Ends]  # the source's leader, the target's, and both logs' ranges


@dataclass(frozen=True, slots=True)
class TakenInTransactions:
    """A partition that can go on in this session of its slot's sender. begins: the ledger has to hear of it first."""

    known: Known
    begins: bool
    source: Led
    target: Led
    sender: SlotSender
    session: int


@dataclass(slots=True)
class TakeOver:
    """Decides for partitions of one flow how they go on; `orders` are what persons decided about some of them,
    `control` journals what the flow's policy decides."""

    record: FlowRecord
    source: ConnectionSettings
    target: ConnectionSettings
    stillness: Stillness
    senders: Senders
    control: ControlWriter
    orders: Mapping[PartitionKey, Order] = field(default_factory=dict)

    def of(self, slots: Mapping[PartitionKey, int]) -> dict[PartitionKey, TakenInTransactions | Trouble]:
        """The partitions come with their slots. Never raises ClusterError."""
        found: dict[PartitionKey, TakenInTransactions | Trouble] = {}
        sessions: dict[int, tuple[SlotSender, int]] = {}
        for slot, opened in self._opened(set(slots.values())).items():
            if isinstance(opened, tuple):
                sessions[slot] = opened
            else:
                found |= {key: opened for key, at in slots.items() if at == slot}
        keys = [key for key, slot in slots.items() if slot in sessions]
        if not keys:
            return found
        try:
            ledger = read_ledger(self.target, flow=self.record.flow.id, slots=sorted(sessions), tolerant=True)
            looked = self._looked(keys, ledger)
        except (ClusterError, ReplicatorError) as error:
            return found | {key: LookAgain(str(error)) for key in keys}
        for key, seen in looked.items():
            if isinstance(seen, ClusterError):
                found[key] = _trouble(seen, self.source.alias)
                continue
            if (halted := ledger.halted(key)) is not None:
                found[key] = halted
                continue
            here, there, ends = seen
            goes = self._decided(key, ledger, ends)
            if isinstance(goes, Goes):
                found[key] = TakenInTransactions(goes.known, goes.begins, here, there, *sessions[slots[key]])
            else:
                found[key] = goes
        return found

    def _decided(self, key: PartitionKey, ledger: Ledger, ends: Ends) -> Goes | Trouble:
        """What the logs say, and what was ordered or is the flow's policy."""
        known = ledger.positions.get(key)
        if known is None and key in ledger.partitions:
            return LookAgain("the ledger knows this partition as copied by sequence numbers")
        start = self.record.start_of(key.topic, key.partition)
        decided = decide(key, known, ends, start)
        if known is None:
            return decided
        order = self.orders.get(key)
        if order is not None:
            before, decided = decided, obeyed(order, decided, known, ends, start)
            outcome = settled_on(order, before)
            if isinstance(decided, Goes) and decided.begins and outcome != order:  # otherwise the journal has it
                try:
                    generation = decided.known.position.generation
                    journal_outcome(self.control, outcome, self.record.topology, generation, "")
                except ClusterError as error:
                    return LookAgain(f"the outcome of an order could not be journaled: {error}")
        if not isinstance(decided, Loud) or decided.state != "source_expired" or self.record.flow.on_gap != "continue":
            return decided
        policy = by_policy(key, decided, known.position.generation, int(time.time() * 1000))
        decided = obeyed(policy, decided, known, ends, start)
        if isinstance(decided, Goes):
            try:
                journal_by_worker(self.control, policy, self.record.topology)
            except ClusterError as error:
                return LookAgain(f"the decision could not be journaled: {error}")
        return decided

    def _looked(self, keys: list[PartitionKey], ledger: Ledger) -> dict[PartitionKey, _Seen | ClusterError]:
        at_source = leaders(self.source, [(key.topic, key.partition) for key in keys], READ_COMMITTED)
        at_target = leaders(self.target, [(key.target_topic, key.partition) for key in keys], READ_UNCOMMITTED)
        found: dict[PartitionKey, _Seen | ClusterError] = {}
        copied: dict[PartitionKey, tuple[Led, int, tuple[Epoch, ...]]] = {}
        for key in keys:
            here, there = at_source[key.topic, key.partition], at_target[key.target_topic, key.partition]
            if isinstance(here, ClusterError):
                found[key] = here
            elif isinstance(there, ClusterError):
                found[key] = there
            else:
                settled = self.stillness.settled(key, "source", here.end, time.monotonic())
                found[key] = here, there, Ends.of(here, there, settled)
                at = ledger.positions[key].position if key in ledger.positions else None
                if (
                    at is not None
                    and at.source_id == here.topic_id
                    and at.leader_epoch >= 0 <= at.position - here.start
                ):
                    copied[key] = here, at.position, (Epoch(at.position - 1, at.leader_epoch),)
        for key, offset in diverging(self.source, copied).items():
            seen = found[key]
            if not isinstance(seen, ClusterError):
                here, there, ends = seen
                found[key] = here, there, ends.parted_at(offset)
        return found

    def _opened(self, slots: Iterable[int]) -> dict[int, tuple[SlotSender, int] | Trouble]:
        """Open all sessions at once: each waits for its coordinator."""

        def opened(slot: int) -> tuple[SlotSender, int] | Trouble:
            try:
                sender = self.senders.of(self.record, slot)
                return sender, sender.open()
            except SessionLost as lost:
                return lost.trouble
            except Unauthorised as error:
                return Loud("unauthorised", str(error))
            except (ClusterError, ReplicatorError) as error:
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
