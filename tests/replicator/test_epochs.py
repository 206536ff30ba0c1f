"""A source that lost what was copied is noticed by the next worker too, also when its log has grown again (F15)."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from tests.replicator.test_ledger import Written
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.wire.messages import READ_COMMITTED, READ_UNCOMMITTED, FetchPartition
from watershed.replicator.batch.batch_selection import select_batches
from watershed.replicator.copy.copy_state import SourceCursor, TargetProgress
from watershed.replicator.copy.partition_copy import PartitionCopy
from watershed.replicator.copy.sequenced_producer import SequencedProducer
from watershed.replicator.ledger.leader_epochs import LeaderEpochEntry, find_leader_epoch_below
from watershed.replicator.ledger.ledger import assemble_partitions
from watershed.replicator.ledger.ledger_block import Generation, LedgerBlock
from watershed.replicator.ledger.ledger_state import LedgerState
from watershed.replicator.ledger.ledger_writer import PartitionLedgerWriter
from watershed.replicator.ledger.offset_map import OffsetRun
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity
from watershed.replicator.partition_states import Halt, OffsetSpan
from watershed.replicator.recovery import log_inspection as look_module
from watershed.replicator.recovery import source_comparison
from watershed.replicator.recovery.log_inspection import BrokerAddress, LeaderLog
from watershed.replicator.recovery.recovery_point import find_recovery_point
from watershed.replicator.recovery.settled_log_ends import SettledLogEnds

KEY = PartitionKey("onprem-to-cloud", "orders", "orders", 0)
NOW = time.time_ns() // 1_000_000  # an inspection compares the broker's times with the clock's


class World:
    """A source, a target, and the ledger of one worker that copies from the one to the other."""

    def __init__(self) -> None:
        self.source, self.target = (FakeCluster(alias, clock=lambda: NOW) for alias in ("onprem", "cloud"))
        self.ids = [cluster.create_topic("orders", 1).topic_id for cluster in (self.source, self.target)]
        self.us = self.target.issue_producer_id()
        self.writer = Written()
        self.generation = 0
        self.made = 0

    def produce(self, count: int) -> None:
        """Batches of one record; no value is used twice."""
        for _ in range(count):
            self.source.produce("orders", 0, [b"%d" % self.made])
            self.made += 1

    def values(self, cluster: FakeCluster) -> dict[int, bytes | None]:
        return {record.offset: record.value for record in cluster.records("orders", 0)}

    def connect(self, settings, _address=None):
        return {"onprem": self.source, "cloud": self.target}[settings.alias].wire()

    def remembered(self) -> LedgerState | None:
        return assemble_partitions(self.writer.blocks())[KEY][0] if self.writer.records else None

    def copy(self) -> None:
        """A worker takes over, copies all there is and dies; what it announced is in the ledger."""
        remembered = self.remembered()
        end = self.target.log("orders", 0).end
        position = remembered.map.source_position(end) if remembered else self.source.log("orders", 0).log_start
        identity = remembered.identity if remembered else ProducerIdentity(self.us, 0, end)
        epochs = remembered.epochs if remembered else (LeaderEpochEntry(position, 0),)
        self.generation += 1
        block = LedgerBlock(KEY, Generation(self.generation, "w"), 1, end, identity, *self.ids, (), epochs=epochs)
        copy = PartitionCopy(
            KEY,
            *self.ids,
            SourceCursor(position, find_leader_epoch_below(epochs, position), list(epochs)),
            TargetProgress(end),
            producer=SequencedProducer(identity, 5, 5),
        )
        ledger = PartitionLedgerWriter(
            self.writer,  # type: ignore[arg-type]
            block,
            copy.durable,
            lambda error: pytest.fail(str(error)),
            self.writer.later.append,
            lambda: tuple(copy.source.epochs),
        )
        first = [OffsetRun(end, position)]
        copy.announce(first)
        ledger.append(first)
        asked = FetchPartition(copy.source_id, 0, copy.source.position, copy.source.leader_epoch, 1 << 20)
        (answer,) = self.source.wire().fetch((asked,), max_wait_ms=0, isolation=READ_COMMITTED)
        assert (answer.error, answer.diverging_epoch) == (0, None)
        runs = copy.accept(select_batches(answer.records, copy.source.position, answer.aborted))
        if runs:
            ledger.append(runs)
        while self.writer.under_way:
            self.writer.answer()
        while (outgoing := copy.next_outgoing()) is not None:
            error, base, _ = self.target.append("orders", 0, b"".join(outgoing.pieces))
            assert (error, base) == (0, outgoing.first)
            copy.queue.in_flight.clear()

    def compared(self, monkeypatch: pytest.MonkeyPatch, exact: bool = True) -> bool | None:
        """What the comparison of the last copied records says."""
        for module in (look_module, source_comparison):
            monkeypatch.setattr(module, "open_connection", self.connect)
        at = [("orders", 0)]
        (here,) = look_module.require_leader_logs(self.source.settings, at, READ_UNCOMMITTED).values()
        (there,) = look_module.require_leader_logs(self.target.settings, at, READ_UNCOMMITTED).values()
        remembered = self.remembered()
        assert remembered is not None
        last = source_comparison.LastCopied(here, there, 0, there.end, remembered.map.to_source, exact)
        (found,) = source_comparison.compare_last_copied(
            self.source.settings, self.target.settings, {KEY: last}
        ).values()
        assert isinstance(found, source_comparison.SourceComparison)
        return found.is_same

    def looked(self, monkeypatch: pytest.MonkeyPatch):
        """What the next worker decides, and the divergence it found."""
        monkeypatch.setattr(look_module, "open_connection", self.connect)
        remembered = self.remembered()
        assert remembered is not None
        found = look_module.inspect_logs(
            [KEY], self.source.settings, self.target.settings, self.us, 86_400_000, SettledLogEnds()
        )
        seen, here, _ = found[KEY]
        position = remembered.map.source_position(seen.target_end)
        parted = look_module.find_log_truncations(self.source.settings, {KEY: (here, position, remembered.epochs)})
        seen = replace(seen, diverges_at=parted.get(KEY))
        return find_recovery_point(remembered, seen, self.us, "earliest"), parted.get(KEY)


def test_a_topic_that_was_made_anew_holds_other_records(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.produce(10)
    world.copy()
    assert world.compared(monkeypatch) is True
    world.source.delete_topic("orders")
    world.source.create_topic("orders", 1)
    assert world.compared(monkeypatch) is None  # nothing is there to compare
    world.produce(5)
    assert world.compared(monkeypatch) is False


def test_truncated_and_grown_again_between_two_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.produce(10)
    world.copy()
    world.source.log("orders", 0).leader_epoch = 3
    world.produce(5)
    world.copy()
    world.source.log("orders", 0).truncate(8)
    world.produce(30)
    decided, parted = world.looked(monkeypatch)
    assert parted == 8
    assert isinstance(decided, Halt)
    assert (decided.state, decided.source, decided.target) == ("source_truncated", OffsetSpan(8, 15), OffsetSpan(8, 15))
    assert "8 to 14" in decided.error


def test_an_election_without_loss_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    for _ in range(4):
        world.produce(3)
        world.copy()
        world.source.log("orders", 0).leader_epoch += 1
    world.produce(1)
    decided, parted = world.looked(monkeypatch)
    assert parted is None
    assert decided.position == 12


@given(
    st.lists(st.tuples(st.sampled_from(["produce", "elect", "copy"]), st.integers(1, 4)), max_size=14),
    st.sampled_from([13, 11]),
    st.data(),
)
@settings(max_examples=choose_examples(50, 150), deadline=None)
def test_the_first_lost_record_is_named_exactly(
    script: list[tuple[str, int]], newest_fetch: int, data: st.DataObject
) -> None:
    """The oracle knows every value: the first copied offset that holds another one now, or none. Brokers whose Fetch
    does not tell are asked for the ends of epochs."""
    world = World()
    world.source.newest_fetch = newest_fetch
    world.produce(1)
    world.copy()
    for step, amount in script:
        if step == "produce":
            world.produce(amount)
        elif step == "elect":
            world.source.log("orders", 0).leader_epoch += 1
        else:
            world.copy()
    log = world.source.log("orders", 0)
    for _ in range(data.draw(st.integers(0, 2))):
        log.truncate(data.draw(st.integers(0, log.end)))
        world.produce(data.draw(st.integers(0, 20)))
    copied, now = world.values(world.target), world.values(world.source)
    lost = next((offset for offset in sorted(copied) if now.get(offset) != copied[offset]), None)
    with pytest.MonkeyPatch.context() as patch:
        decided, parted = world.looked(patch)
        is_same = world.compared(patch)
    assert parted == lost
    newest = [offset for offset in sorted(copied)[-100:] if offset in now]
    assert is_same == (now[newest[-1]] == copied[newest[-1]] if newest else None)
    assert (isinstance(decided, Halt) and decided.state == "source_truncated") == (lost is not None)


def test_a_new_epoch_waits_for_the_ledger() -> None:
    """Its first batch must not land before the ledger knows of it: too small an epoch looks like a truncated log."""
    world = World()
    world.produce(2)
    world.source.log("orders", 0).leader_epoch = 4
    world.produce(2)
    identity = ProducerIdentity(world.us, 0, 0)
    copy = PartitionCopy(
        KEY,
        *world.ids,
        SourceCursor(0, -1, [LeaderEpochEntry(0, 0)]),
        TargetProgress(0),
        producer=SequencedProducer(identity, 5, 5),
    )
    (answer,) = world.source.wire().fetch((FetchPartition(world.ids[0], 0, 0),), max_wait_ms=0)
    runs = copy.accept(select_batches(answer.records, 0, (), terms=_each_alone()))
    assert runs == [OffsetRun(2, 2)]
    assert copy.source.epochs == [LeaderEpochEntry(0, 0), LeaderEpochEntry(2, 4)]
    assert [copy.next_outgoing().first for _ in range(2)] == [0, 1]
    assert copy.next_outgoing() is None
    copy.durable(runs)
    assert copy.next_outgoing().first == 2


def _each_alone():
    from watershed.replicator.batch.repack import RepackTerms

    return RepackTerms(small=0)


def test_which_epoch_lies_below() -> None:
    epochs = (LeaderEpochEntry(10, 2), LeaderEpochEntry(20, 5))
    assert [find_leader_epoch_below(epochs, at) for at in (0, 10, 11, 20, 21)] == [-1, -1, 2, 2, 5]
    assert find_leader_epoch_below((), 100) == -1


def test_nobody_is_asked_about_an_unknown_epoch() -> None:
    led = LeaderLog(uuid.uuid4(), BrokerAddress("nowhere", 1), 0, 10)
    assert look_module.find_log_truncations(FakeCluster("onprem").settings, {KEY: (led, 5, ())}) == {}
