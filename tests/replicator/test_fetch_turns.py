"""Several questions to a broker far away: whatever order they arrive and are answered in, each record comes once."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.replicator.test_fetcher_and_sender import NOWHERE, active_copy_of, answered_in_turn
from watershed.clusters.fake_cluster import FakeCluster
from watershed.clusters.fake_wire import FakeWire
from watershed.clusters.wire.fetch_session import FetchSession
from watershed.clusters.wire.messages import FetchedPartition
from watershed.replicator.batch.batch_selection import SelectedBatches
from watershed.replicator.recovery.log_inspection import BrokerAddress
from watershed.replicator.transport.broker_connection import FAR_S
from watershed.replicator.transport.fetch_turns import QUESTIONS, FetchTurns
from watershed.replicator.transport.fetcher import Fetcher


class FarWire:
    """A connection whose questions arrive, and whose answers come, when the test says so."""

    alias, address, throttle_ms, buffered = "onprem", ("127.0.0.1", 1), 0, False

    def __init__(self, cluster: FakeCluster) -> None:
        self.broker = FakeWire(cluster)
        self._readable, self._written = os.pipe()
        self.question: tuple[Any, ...] | None = None  # on its way
        self.answer: list[FetchedPartition] | None = None  # on its way back

    def send_session_fetch(self, session: FetchSession, **_terms: Any) -> None:
        assert (self.question, self.answer) == (None, None)
        session.build_question()
        session.take_answer(7)
        self.question = session.list_wanted()

    def arrive(self) -> None:
        """The question is at the broker, which answers at once."""
        assert self.question is not None
        self.answer, self.question = self.broker.fetch(self.question, max_wait_ms=0), None
        os.write(self._written, b"\0")

    def receive_session_fetch(self, _session: FetchSession, *, may_be_lost: bool) -> list[FetchedPartition]:
        assert may_be_lost
        os.read(self._readable, 1)
        assert self.answer is not None
        answer, self.answer = self.answer, None
        return answer

    def fileno(self) -> int:
        return self._readable

    def ended(self) -> bool:
        return False

    def close(self) -> None:
        os.close(self._readable)
        os.close(self._written)


class FarCopy:
    """A fetcher of busy partitions, one of a cluster in memory, that asks in turns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = FakeCluster("onprem")
        topic = self.cluster.create_topic("orders", 1).topic_id
        self.active = active_copy_of(source_id=topic)
        self.active.is_busy = True
        self.fetcher = Fetcher("live", self.cluster.settings, NOWHERE, lambda: 1 << 20, is_busy=True)
        self.wires: list[FarWire] = []
        self.copied: list[int] = []
        accept = self.active.copy.accept

        def note(selected: SelectedBatches) -> Any:
            self.copied += [offset for batch in selected.batches for offset in range(batch.base, batch.end)]
            return accept(selected)

        monkeypatch.setattr(type(self.active.copy), "accept", lambda _copy, selected: note(selected))
        self.fetcher.put(self.active)
        self.fetcher._review_changed(0.0)
        self.turns = self.fetcher._turns = FetchTurns(self.fetcher._session, self._open)
        self.fetcher._round_trip_s = 5 * FAR_S

    def _open(self) -> Any:
        self.wires.append(FarWire(self.cluster))
        return self.wires[-1]

    def take_turn(self) -> None:
        """Send what is due, and take what is there."""
        while self.active.sequenced_copy.has_unsent:  # so that there is room
            answered_in_turn(self.active)
        self.turns._next = 0.0
        self.fetcher._review_changed(0.0)
        self.turns.send_due(time.monotonic(), 0.1, 0.0, 1 << 20)
        self.turns._next = 0.0
        self.fetcher._take_turns(self.turns, False, 1 << 20, 0.0)


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> Iterator[FarCopy]:
    monkeypatch.setattr("watershed.replicator.copy.common_copy.HELD_BYTES", 1 << 30)
    monkeypatch.setattr("watershed.replicator.transport.fetcher.LONGEST_SLEEP_S", 0.0)
    scene = FarCopy(monkeypatch)
    yield scene
    scene.turns.close()


def test_questions_are_under_way_at_the_same_time(far: FarCopy) -> None:
    for _ in range(QUESTIONS + 2):
        far.turns.send_due(time.monotonic(), 0.0, 0.0, 1 << 20)
    assert len(far.wires) == QUESTIONS
    assert far.turns.is_waiting


def test_what_two_answers_bring_is_copied_once(far: FarCopy) -> None:
    far.cluster.produce("orders", 0, [b"a"])
    for _ in range(2):
        far.turns.send_due(time.monotonic(), 0.0, 0.0, 1 << 20)
    far.wires[0].arrive()
    far.cluster.produce("orders", 0, [b"b"])
    far.wires[1].arrive()
    far.fetcher._take_turns(far.turns, False, 1 << 20, 0.0)
    assert far.copied == [0, 1]


@pytest.mark.parametrize("seed", range(40))
def test_each_record_comes_once_and_in_order(far: FarCopy, seed: int) -> None:
    dice = random.Random(seed)
    written = 0
    for _ in range(120):
        action = dice.randrange(4)
        if action == 0:
            many = dice.randrange(1, 4)
            far.cluster.produce("orders", 0, [b"x"] * many)
            written += many
        elif action == 1 and (under_way := [wire for wire in far.wires if wire.question is not None]):
            dice.choice(under_way).arrive()
        else:
            far.take_turn()
        assert far.copied == list(range(len(far.copied)))
    for _ in range(3 * QUESTIONS):
        for wire in far.wires:
            if wire.question is not None:
                wire.arrive()
        far.take_turn()
    assert far.copied == list(range(written))
    assert far.active.copy.trouble is None


def test_an_answer_to_a_question_of_an_earlier_copy_is_not_used(far: FarCopy) -> None:
    """The copy before had read further than the one that began anew."""
    far.cluster.produce("orders", 0, [b"a"])
    far.take_turn()
    far.wires[0].arrive()
    far.take_turn()
    assert far.copied == [0]
    far.turns.send_due(time.monotonic(), 0.0, 0.0, 1 << 20)  # asks from offset 1 on
    far.cluster.produce("orders", 0, [b"b"])
    after = active_copy_of(source_id=far.active.copy.source_id)
    after.is_busy = True
    far.fetcher.remove(far.active)
    far.fetcher.put(after)
    far.fetcher._review_changed(0.0)
    for wire in far.wires:
        if wire.question is not None:
            wire.arrive()
    far.fetcher._take_turns(far.turns, False, 1 << 20, 0.0)
    assert (far.copied, after.copy.source.position) == ([0], 0)


def test_an_answer_is_used_although_its_partition_was_left_out_meanwhile(
    far: FarCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota that others spend leaves it out and takes it up again, several times a round trip."""
    far.cluster.produce("orders", 0, [b"a"])
    far.turns.send_due(time.monotonic(), 0.0, 0.0, 1 << 20)
    far.fetcher._review(far.active, share=0)
    assert not far.fetcher._asked
    far.wires[0].arrive()
    far.fetcher._review(far.active, share=1 << 20)
    far.fetcher._take_turns(far.turns, False, 1 << 20, 0.0)
    assert far.copied == [0]


def test_nobody_looks_for_answers_without_a_pause_where_nothing_can_be_asked(
    far: FarCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(
        "watershed.replicator.transport.fetch_turns.select.poll",
        lambda: SimpleNamespace(register=lambda *_: None, poll=lambda ms: pauses.append(ms) or []),
    )
    far.turns.send_due(time.monotonic(), 0.0, 0.0, 1 << 20)
    far.fetcher._take_turns(far.turns, False, 1 << 20, 0.0)
    assert pauses == [5.0]


def test_many_bytes_are_carried_once(far: FarCopy) -> None:
    far.cluster.produce("orders", 0, [b"x" * 70_000])
    far.take_turn()
    far.wires[0].arrive()
    far.fetcher._take_turns(far.turns, False, 1 << 20, 0.0)
    assert far.turns._alone_until > 0
    for _ in range(QUESTIONS):
        far.turns._next = 0.0
        far.turns.send_due(time.monotonic(), 0.0, 0.0, 1 << 20)
    assert sum(wire.question is not None for wire in far.wires) == 1


def test_an_answer_under_way_is_not_used_when_another_one_sends_the_partition_to_a_follower(
    far: FarCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned: list[BrokerAddress] = []
    far.active.turn = turned.append
    monkeypatch.setattr(far.fetcher, "_find_broker", lambda _node: BrokerAddress("follower", 9092))
    far.cluster.produce("orders", 0, [b"a"])
    for _ in range(2):
        far.turns.send_due(time.monotonic(), 0.0, 0.0, 1 << 20)
    for wire in far.wires:
        wire.arrive()
    told = far.wires[0].answer or []
    far.wires[0].answer = [replace(each, records=memoryview(b""), preferred=2) for each in told]
    far.fetcher._take_turns(far.turns, False, 1 << 20, 0.0)
    assert turned == [BrokerAddress("follower", 9092)]
    assert (far.copied, far.active.copy.source.position, far.active.copy.trouble) == ([], 0, None)
    assert far.active.replica.follower == 2
