"""The ledger: generations laid over each other, and runs that are written before they are used."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from watershed.clusters.control_records import ControlRecord, StoredControlRecord
from watershed.clusters.control_topics import LEDGER_TOPIC, SLOT_COUNT
from watershed.clusters.errors import ClusterError, ProtocolError, Unreachable
from watershed.clusters.settings import ConnectionSettings
from watershed.replicator.errors import NoLedger, ReplicatorError
from watershed.replicator.ledger import ledger as ledger_module
from watershed.replicator.ledger import shared_ledger
from watershed.replicator.ledger.leader_epochs import LeaderEpochEntry
from watershed.replicator.ledger.ledger import Ledger, assemble_partitions, build_ledger, build_tolerant_ledger
from watershed.replicator.ledger.ledger_block import BLOCK_RUNS, Generation, LedgerBlock
from watershed.replicator.ledger.ledger_writer import MAX_LOOSE_RECORDS, WHOLE_BLOCK_RUNS, PartitionLedgerWriter
from watershed.replicator.ledger.offset_map import OffsetMap, OffsetRun
from watershed.replicator.ledger.record_format import FlowPartition
from watershed.replicator.ledger.shared_ledger import SharedLedger
from watershed.replicator.partition_key import PartitionKey, ProducerIdentity

KEY = PartitionKey("onprem-to-cloud", "orders", "mirror.orders", 3)
SOURCE, TARGET = uuid.uuid4(), uuid.uuid4()


def block(
    generation: int, worker: str, start: int, *runs: tuple[int, int], number: int = 0, producer: int = 7
) -> LedgerBlock:
    identity = ProducerIdentity(producer, 0, 0)
    places = tuple(OffsetRun(*run) for run in runs)
    return LedgerBlock(KEY, Generation(generation, worker), number, start, identity, SOURCE, TARGET, places)


def store(record: ControlRecord) -> StoredControlRecord:
    """The record as it is stored; one that is not valid as bytes that are no JSON."""
    value = b"{" if record.why else None if record.value is None else json.dumps(record.value).encode()
    return StoredControlRecord(record.partition, record.offset, record.timestamp_ms, record.key.encode(), value)


def map_of(*blocks: LedgerBlock) -> OffsetMap:
    return assemble_partitions(blocks)[KEY][0].map


# -- generations -----------------------------------------------------------------------------------------------


def test_one_generation() -> None:
    offsets = map_of(block(1, "a", 0, (0, 100), (10, 111)))
    assert offsets.runs == ((0, 100), (10, 111))


def test_a_takeover_that_only_repeats_where_it_stands_adds_nothing() -> None:
    assert map_of(block(1, "a", 0, (0, 0)), block(2, "b", 10, (10, 10)), block(3, "c", 12, (12, 12))).runs == ((0, 0),)


def test_the_newest_generation_gives_identity_and_number() -> None:
    remembered, number = assemble_partitions([block(3, "c", 9, (9, 9), producer=8), block(1, "a", 0, (0, 0))])[KEY]
    assert (number, remembered.identity.producer_id) == (3, 8)
    assert (remembered.source_id, remembered.target_id) == (SOURCE, TARGET)


def test_a_slow_worker_announces_beyond_the_newer_one() -> None:
    """`a` was believed dead; its batches land while `b` has announced no more than its start."""
    offsets = map_of(block(1, "a", 0, (0, 0), (10, 11), (20, 22)), block(2, "b", 5, (5, 5)))
    assert offsets.runs == ((0, 0), (10, 11), (20, 22))


def test_a_slow_worker_announces_the_gap_at_which_the_newer_one_stands() -> None:
    """The log ended at 10 in front of a marker when `b` looked; then `a` met the marker and sent what follows."""
    offsets = map_of(block(1, "a", 0, (0, 0), (10, 11)), block(2, "b", 10, (10, 10)))
    assert offsets.source_position(10) == 11
    assert offsets.to_source(15) == 16


def test_a_gap_met_in_two_fetches() -> None:
    """`b` stands behind the first half of the gap, `a` had got through the whole of it."""
    offsets = map_of(block(1, "a", 0, (0, 0), (10, 12), (10, 13)), block(2, "b", 10, (10, 12)))
    assert offsets.source_position(12) == 15


def test_both_began_at_the_same_place() -> None:
    for names in ("ab", "ba"):
        first, second = names
        offsets = map_of(
            block(2, first, 10, (10, 12)), block(2, second, 10, (10, 12), (15, 18)), block(1, "z", 0, (0, 0))
        )
        assert offsets.runs == ((0, 0), (10, 12), (15, 18))


def test_after_a_compaction_the_newer_one_is_right() -> None:
    """Source 20 to 29 vanished between the two: `b` meets the marker at 100 ten records earlier."""
    offsets = map_of(block(1, "a", 0, (0, 0), (100, 101)), block(2, "b", 10, (10, 10), (20, 30)))
    assert offsets.runs == ((0, 0), (20, 30))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[LedgerBlock], list[int], int]:
    """(blocks in any order, source offset of every target offset, target's log end).

    Every generation announces where it stands (anywhere in the gap there), then the gaps that follow, as far as it
    gets and in one or several pieces, often far beyond the log end. One that was replaced may have got further.
    """
    records: list[int] = []
    gaps: list[tuple[int, int, int]] = []  # target, source offset of the gap, of the record behind it
    source = 0
    for _ in range(draw(st.integers(1, 6))):
        count, gap = draw(st.integers(0, 4)), draw(st.integers(1, 4))
        records += range(source, source + count)
        gaps.append((len(records), source + count, source + count + gap))
        source += count + gap
    blocks: list[LedgerBlock] = []
    reach = 0
    for number in range(1, draw(st.integers(1, 5)) + 1):
        start = draw(st.integers(0, reach))
        before = records[start - 1] + 1 if start else 0
        behind = max([before, *(end for target, _, end in gaps if target == start)])
        position = draw(st.integers(before, behind))
        runs = [(start, position)]
        ahead = [gap for gap in gaps if gap[0] >= start and gap[2] > position]
        met = draw(st.integers(0, len(ahead)))
        for target, begin, end in ahead[:met]:
            pieces = draw(st.sets(st.integers(max(begin, position) + 1, end)))
            runs += [(target, at) for at in sorted({*pieces, end})]
        reach = max(reach, ahead[met][0] if met < len(ahead) else len(records))
        cut = draw(st.integers(1, len(runs)))
        blocks.append(block(number, draw(st.sampled_from("abc")), start, *runs[:cut]))
        if cut < len(runs):
            blocks.append(
                LedgerBlock(
                    KEY, blocks[-1].generation, 1, start, blocks[-1].identity, SOURCE, TARGET,
                    tuple(OffsetRun(*run) for run in runs[cut:]),
                )
            )  # fmt: skip
    return draw(st.permutations(blocks)), records, draw(st.integers(0, reach))


@given(histories())
@settings(max_examples=choose_examples(130, 400), deadline=None)
def test_any_honest_history_gives_the_true_map(history: tuple[list[LedgerBlock], list[int], int]) -> None:
    blocks, records, end = history
    offsets = map_of(*blocks)
    assert [offsets.to_source(target) for target in range(end)] == records[:end]
    position = offsets.source_position(end)
    assert sum(record < position for record in records) == end


def test_partitions_are_kept_apart() -> None:
    other = KEY._replace(partition=4)
    theirs = LedgerBlock(
        other, Generation(1, "a"), 0, 0, ProducerIdentity(7, 0, 0), SOURCE, TARGET, (OffsetRun(0, 50),)
    )
    ledger = Ledger(assemble_partitions([block(1, "a", 0, (0, 5)), theirs]))
    assert ledger.map(KEY.flow, "orders", 3).runs == ((0, 5),)
    assert ledger.map(KEY.flow, "mirror.orders", 4).runs == ((0, 50),)
    assert ledger.remembered(KEY._replace(partition=9)) == (None, 0)
    with pytest.raises(NoLedger, match="partition 9"):
        ledger.map(KEY.flow, "orders", 9)


# -- records ---------------------------------------------------------------------------------------------------


def as_record(value: dict[str, Any] | None, key: str = "onprem-to-cloud|orders|3|1.a|0") -> ControlRecord:
    return ControlRecord(2, 40, 0, key, value)


def test_a_block_survives_its_record() -> None:
    for runs in ([], [(2**33, 5), (2**33 + 7, 20)], [(9 * at, at * at + 9 * at - 40) for at in range(5, 900)]):
        sent = replace(block(4, "w1", 2**33, *runs), number=3, epochs=(LeaderEpochEntry(5, 2),), note="n", closed=True)
        assert sent.record_key == "onprem-to-cloud|orders|3|4.w1|3"
        record = as_record(json.loads(json.dumps(sent.to_json())), sent.record_key)
        assert replace(LedgerBlock.from_record(record), at=sent.at) == sent


def test_runs_that_contradict_themselves_are_kept_as_they_are() -> None:
    """What is wrong is for the reader to say (`BrokenOffsetMap`), not for the writer to hide."""
    wrong = [OffsetRun(10 * at, 500 - at) for at in range(20)]
    sent = LedgerBlock(KEY, Generation(1, "a"), 0, 0, ProducerIdentity(7, 0, 0), SOURCE, TARGET, wrong)
    assert LedgerBlock.from_record(as_record(sent.to_json(), sent.record_key)).runs == wrong


def test_a_block_as_earlier_versions_wrote_it() -> None:
    value = {
        "schema": 1, "flow": KEY.flow, "topic": KEY.topic, "target_topic": KEY.target_topic, "partition": KEY.partition,
        "generation": 4, "worker": "w1", "block": 3, "start": 10, "producer_id": 7, "epoch": 2, "base": 5,
        "source_id": str(SOURCE), "target_id": str(TARGET), "runs": [[10, 12], [20, 23]], "epochs": [[3, 1]],
        "since": 1, "order": "o", "note": "n", "needs_epoch": True, "closed": False, "after": 0,
    }  # fmt: skip
    read = LedgerBlock.from_record(as_record(value, "onprem-to-cloud|orders|3|4.w1|3"))
    assert read == LedgerBlock(
        KEY,
        Generation(4, "w1"),
        3,
        10,
        ProducerIdentity(7, 2, 5),
        SOURCE,
        TARGET,
        (OffsetRun(10, 12), OffsetRun(20, 23)),
        40,
        (LeaderEpochEntry(3, 1),),
        1,
        "o",
        "n",
        True,
        False,
        0,
    )
    assert read.record_key == "onprem-to-cloud|orders|3|4.w1|3"


@pytest.mark.parametrize("packed", ["", "!", "AAAA", "eJxjYGBgAAAABAAB", 7, None])
def test_packed_runs_that_are_none(packed: object) -> None:
    value = {**block(1, "a", 0, (0, 0)).to_json(), "then": packed}
    with pytest.raises(ProtocolError, match="partition 2 offset 40"):
        LedgerBlock.from_record(as_record(value))


@pytest.mark.parametrize(
    "broken",
    [{}, {"schema": 3}, {"source_id": "x"}, {"runs": [[1]]}, {"runs": None}, {"producer_id": None}],
    ids=str,
)
def test_a_record_of_another_kind_is_named(broken: dict[str, Any]) -> None:
    value = {**block(1, "a", 0, (0, 0)).to_json(), **broken} if broken else {}
    if broken.get("producer_id", "") is None:
        del value["producer_id"]
    with pytest.raises(ProtocolError, match="partition 2 offset 40"):
        LedgerBlock.from_record(as_record(value))


# -- writing ---------------------------------------------------------------------------------------------------


class Written:
    """A writer that keeps what it is given until the test acknowledges it."""

    def __init__(self) -> None:
        self.records: list[tuple[str, dict[str, Any] | None, int, Callable[[ClusterError | None, int], None]]] = []
        self.answered = 0
        self.later: list[Callable[[], None]] = []
        self.answering = False
        self.refuse: ClusterError | None = None

    def put_nowait(self, topic: str, key: str, value: dict[str, Any] | None, partition: int, on_done: Any) -> None:
        assert topic == LEDGER_TOPIC
        assert not self.answering, "the Kafka client must not be called from its own callback"
        if self.refuse is not None:
            raise self.refuse
        self.records.append((key, value, partition, on_done))

    @property
    def under_way(self) -> int:
        """Of the records that stand in nobody's place (tombstones are not waited for)."""
        return sum(value is not None for _, value, _, _ in self.records[self.answered :])

    def answer(self, error: ClusterError | None = None) -> None:
        done = self.records[self.answered][3]
        self.answered += 1
        self.answering = True
        done(error, -1 if error else self.answered)
        self.answering = False
        while self.later:
            self.later.pop(0)()

    def blocks(self) -> list[LedgerBlock]:
        """As compaction leaves them."""
        newest = {key: value for key, value, _, _ in self.records}
        return [LedgerBlock.from_record(as_record(value, key)) for key, value in newest.items() if value is not None]


class Writing:
    def __init__(self) -> None:
        self.writer = Written()
        self.durable: list[OffsetRun] = []
        self.failures: list[ClusterError] = []
        self.ledger = PartitionLedgerWriter(
            self.writer,  # type: ignore[arg-type]
            block(1, "a", 0),
            self.durable.extend,
            self.failures.append,
            self.writer.later.append,
        )


def runs(first: int, count: int) -> list[OffsetRun]:
    """Runs that do not continue each other."""
    return [OffsetRun(10 * at, 11 * at) for at in range(first, first + count)]


def test_one_record_is_under_way_at_a_time() -> None:
    writing = Writing()
    writing.ledger.append(runs(0, 1))
    writing.ledger.append(runs(1, 2))
    writing.ledger.append(runs(3, 1))
    assert (writing.writer.under_way, writing.durable) == (1, [])
    writing.writer.answer()
    assert (writing.writer.under_way, writing.durable) == (1, runs(0, 1))
    writing.writer.answer()
    assert (writing.writer.under_way, writing.durable) == (0, runs(0, 4))
    assert len(writing.writer.records) == 2
    assert map_of(*writing.writer.blocks()).runs == tuple(runs(0, 4))


def test_nothing_to_write() -> None:
    writing = Writing()
    writing.ledger.append([])
    assert writing.writer.records == []


@pytest.mark.parametrize("count", [BLOCK_RUNS - 1, BLOCK_RUNS, BLOCK_RUNS + 1, 3 * BLOCK_RUNS])
def test_blocks_are_full_before_the_next_begins(count: int) -> None:
    writing = Writing()
    writing.ledger.append(runs(0, count))
    while writing.writer.under_way:
        writing.writer.answer()
    sizes = sorted((len(found.runs) for found in writing.writer.blocks()), reverse=True)
    full, rest = divmod(count, BLOCK_RUNS)
    assert sizes == [*[BLOCK_RUNS] * full, *([rest] if rest else [])]
    assert writing.durable == runs(0, count)
    assert map_of(*writing.writer.blocks()).runs == tuple(runs(0, count))


SIZES = st.integers(0, 3) | st.integers(0, 300) | st.sampled_from((WHOLE_BLOCK_RUNS, BLOCK_RUNS - 1, 3 * BLOCK_RUNS))


@given(st.lists(SIZES | st.none() | st.none(), max_size=120))
@settings(max_examples=60, deadline=None)
def test_nothing_is_lost_or_told_twice(script: list[int | None]) -> None:
    """Appends of any size, acknowledgements (None) at any time. What is durable is in the ledger, in order."""
    writing, appended = Writing(), 0
    for step in script:
        if step is None:
            if writing.writer.under_way:
                writing.writer.answer()
        else:
            writing.ledger.append(runs(appended, step))
            appended += step
        assert writing.writer.under_way <= 1
        assert writing.durable == runs(0, len(writing.durable))
        written = sorted({run for found in writing.writer.blocks() for run in found.runs})
        assert written[: len(writing.durable)] == writing.durable
    while writing.writer.under_way:
        writing.writer.answer()
    assert writing.durable == runs(0, appended)


def test_runs_that_come_one_by_one_cost_small_records() -> None:
    """A block is written as a whole after LOOSE small records, never for a single run; their keys are used again."""
    writing = Writing()
    for at in range(BLOCK_RUNS + 100):
        writing.ledger.append(runs(at, 1))
        while writing.writer.answered < len(writing.writer.records):
            writing.writer.answer()
    sizes = [len(json.dumps(value)) for _, value, _, _ in writing.writer.records]
    assert sum(sizes) / (BLOCK_RUNS + 100) < 700
    assert len(writing.writer.blocks()) <= MAX_LOOSE_RECORDS + 2
    assert map_of(*writing.writer.blocks()).runs == runs(0, BLOCK_RUNS + 100)
    keys = [key for key, value, *_ in writing.writer.records if value is not None]
    assert len(keys) == len(set(keys))


def test_every_record_of_a_partition_goes_to_its_slot() -> None:
    writing = Writing()
    writing.ledger.append(runs(0, 600))
    while writing.writer.under_way:
        writing.writer.answer()
    slots = {slot for _, _, slot, _ in writing.writer.records}
    assert len(slots) == 1
    assert slots <= set(range(SLOT_COUNT))


def test_failure_is_told_once_and_nothing_more_is_written() -> None:
    writing, error = Writing(), Unreachable("no acknowledgement")
    writing.ledger.append(runs(0, 1))
    writing.ledger.append(runs(1, 1))
    writing.writer.answer(error)
    writing.ledger.append(runs(2, 1))
    assert (writing.failures, writing.durable) == ([error], [])
    assert writing.writer.under_way == 0


def test_a_writer_that_refuses_at_once() -> None:
    writing = Writing()
    writing.writer.refuse = Unreachable("queue full")
    writing.ledger.append(runs(0, 1))
    assert (writing.failures, writing.durable) == ([writing.writer.refuse], [])


def test_runs_appended_between_acknowledgement_and_going_on() -> None:
    """The fetching thread announces more while the acknowledgement is being handled: still one record at a time."""
    writing = Writing()
    writing.ledger.append(runs(0, 1))
    writing.ledger.on_durable = lambda done: (writing.durable.extend(done), writing.ledger.append(runs(9, 1)))[0]
    writing.writer.answer()
    assert (writing.writer.under_way, writing.durable) == (1, runs(0, 1))


def test_order_of_generations_is_by_number_not_by_text() -> None:
    blocks = [block(number, "a", number, (number, 2 * number)) for number in range(1, 13)]
    random.Random(1).shuffle(blocks)
    assert assemble_partitions(blocks)[KEY][1] == 12


# -- what contradicts itself -----------------------------------------------------------------------------------------


def test_a_map_that_contradicts_itself_concerns_its_partition_only() -> None:
    theirs = replace(block(1, "a", 0, (0, 50)), key=KEY._replace(partition=4))
    ledger = Ledger(assemble_partitions([block(1, "a", 0, (0, 20), (10, 25)), theirs]))
    assert ledger.map(KEY.flow, "orders", 4).to_source(3) == 53
    assert set(ledger.copies()) == set(ledger.standing()) == {KEY, theirs.key}
    broken = ledger.map(KEY.flow, "orders", 3)
    for ask in (lambda: broken.to_target(22, 99), lambda: broken.to_source(5), lambda: broken.source_position(99)):
        with pytest.raises(ReplicatorError, match="contradicts itself"):
            ask()


def test_runs_that_two_threads_announced_side_by_side_are_sorted() -> None:
    assert map_of(block(1, "a", 0, (0, 0), (20, 25), (10, 12))).runs == ((0, 0), (10, 12), (20, 25))


# -- records that cannot be read -------------------------------------------------------------------------------

OTHER = replace(block(1, "a", 0, (0, 7)), key=PartitionKey(KEY.flow, "payments", "payments", 0))
WRONG: dict[str, dict[str, Any]] = {
    "nothing": {},
    "another flow": {"flow": "else"},
    "text for a number": {"producer_id": "7"},
    "a list for a number": {"start": [0]},
    "a number for an id": {"source_id": 5},
    "text for runs": {"runs": "x"},
    "runs of text": {"runs": [["a", "b"]]},
    "beyond 64 bits": {"runs": [[1 << 70, 0]]},
    "an epoch of lists": {"epochs": [[[], []]]},
    "a list for a note": {"note": []},
    "a number for a truth": {"closed": 1},
    "another schema": {"schema": 99},
    "another kind": {"kind": "position"},
    "a kind that is a list": {"kind": ["position"]},
}


def stored_as(each: LedgerBlock, at: int, value: dict[str, Any] | None = None, why: str = "") -> ControlRecord:
    return ControlRecord(3, at, 0, each.record_key, None if why else each.to_json() if value is None else value, why)


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_partition_stops_at_a_record_that_cannot_be_read_and_others_go_on(wrong: dict[str, Any]) -> None:
    first, second = block(1, "a", 0, (0, 0)), block(1, "a", 0, (5, 9), number=1)
    bad = stored_as(second, 7, second.to_json() | wrong if wrong else {})
    ledger = build_tolerant_ledger([stored_as(first, 1), bad, stored_as(OTHER, 2)])
    assert set(ledger.partitions) == {OTHER.key}
    halted = ledger.halted(KEY)
    assert halted is not None
    assert halted.state == "ledger_invalid"
    assert f"{LEDGER_TOPIC} holds a record at partition 3 offset 7" in halted.error
    assert ledger.halted(OTHER.key) is None
    with pytest.raises(ProtocolError, match="partition 3 offset 7"):
        build_ledger([stored_as(first, 1), bad])


def test_bytes_that_are_no_record_stop_their_partition_until_the_key_is_healed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = block(1, "a", 0, (0, 0)), block(1, "a", 0, (5, 9), number=1)
    log = [stored_as(first, 0), stored_as(second, 1), stored_as(OTHER, 2), stored_as(second, 3, why="not JSON")]
    log.append(ControlRecord(3, 4, 0, "no key of ours", None, "not JSON"))
    for module in (ledger_module, shared_ledger):
        monkeypatch.setattr(module, "read_stored_records", lambda *_args, **_how: map(store, log))
    cloud = ConnectionSettings("cloud", ("127.0.0.1:1",))
    ledger = ledger_module.read_ledger(cloud, KEY.flow, tolerant=True)
    assert ledger.halted(KEY) is not None
    assert set(ledger.partitions) == {OTHER.key}
    places = {FlowPartition(key.flow, key.topic, key.partition) for key in (KEY, OTHER.key)}
    assert [each.key for each in SharedLedger(cloud).read_blocks(places, [3])] == [OTHER.key]
    with pytest.raises(ProtocolError, match="partition 3 offset 3"):
        ledger_module.read_ledger(cloud, KEY.flow)
    log.append(stored_as(second, 5))
    healed = ledger_module.read_ledger(cloud, KEY.flow)
    assert healed.map(KEY.flow, KEY.topic, KEY.partition).runs == (OffsetRun(0, 0), OffsetRun(5, 9))
    log += [stored_as(second, 6, why="not JSON"), ControlRecord(3, 7, 0, second.record_key, None)]
    assert ledger_module.read_ledger(cloud, KEY.flow).map(KEY.flow, KEY.topic, KEY.partition).runs == (OffsetRun(0, 0),)
