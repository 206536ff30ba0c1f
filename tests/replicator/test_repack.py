"""What is repacked, how it is cut, what is merged, and what is left out for the quarantine."""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from tests.replicator.build import NOW, abort, answer, commit, damaged, data, emptied, transactional, with_attributes
from tests.replicator.build import with_crc as sealed
from watershed.clusters.record_batch import (
    BatchRecord,
    assign_batch_offset,
    build_batch,
    compute_batch_crc,
    decode_batch_header,
    decode_batch_records,
)
from watershed.replicator.batch import codecs, records, repack
from watershed.replicator.batch.batch_selection import SelectedBatches, select_batches
from watershed.replicator.batch.record_batch import BatchChecksum, RawBatch
from watershed.replicator.batch.records import build_raw_batch, decode_records
from watershed.replicator.batch.repack import (
    MERGED_BATCH_BYTES,
    SMALL_BATCH_BYTES,
    RejectedRecord,
    RepackTerms,
    choose_merging,
)
from watershed.replicator.errors import OversizedBatch
from watershed.replicator.limits import TargetLimits
from watershed.topology.egress_compression import CODEC_LEVELS, build_egress_compression

Seen = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def seen(batches: list[RawBatch]) -> list[Seen]:
    """The records as the target will hold them, with their source offsets. A broker must take every batch."""
    found: list[Seen] = []
    for batch in batches:
        head = decode_batch_header(batch.data)
        assert head.crc == compute_batch_crc(batch.data)
        assert head.count == head.last_offset_delta + 1 == batch.records
        assert not head.attributes & ~0x17, "only a codec, and what the header's rewriting clears"
        readable = (
            batch
            if batch.codec < 2
            else build_raw_batch(decode_records(batch._replace(base=0, end=batch.records)), 0, 0)
        )
        for at, record in enumerate(decode_batch_records(readable.data)):
            found.append((batch.source_offset(at), record.timestamp, record.key, record.value, record.headers))
    return found


def of(batch: bytes) -> list[Seen]:
    """As a consumer of the source sees them."""
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in decode_batch_records(batch)]


def spans(selected: SelectedBatches) -> list[tuple[int, int]]:
    return [span for batch in selected.batches for span in batch.spans or ((batch.base, batch.records),)]


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (data(2, offsets=(0, 2, 3)), ((2, 1), (4, 2))),
        (data(2, offsets=(1, 2)), ((3, 2),)),
        (data(2, offsets=(0, 1), span=40), ((2, 2),)),
        (data(2, offsets=(5,), span=40, codec="gzip"), ((7, 1),)),
        (data(2, offsets=(0, 9), producer_id=7, transactional=True), ((2, 1), (11, 1))),
    ],
)
def test_holes(batch: bytes, expected: tuple[tuple[int, int], ...]) -> None:
    selected = select_batches(answer(data(0, 2), batch), 0, terms=RepackTerms(small=0))
    assert selected.batches[1].spans == expected
    assert seen(selected.batches) == of(data(0, 2)) + of(batch)
    assert selected.batches[-1].end == selected.position == decode_batch_header(batch).last_offset + 1


def test_a_marker_that_is_cut_off_stops_behind_what_stands_before_it() -> None:
    marker = abort(2, 7)
    for cut in range(61, len(marker)):
        broken = bytearray(marker[:cut])
        broken[8:12] = (cut - 12).to_bytes(4, "big")
        broken[61:] = b"\xff" * (cut - 61)
        selected = select_batches(answer(data(0, 2), sealed(bytes(broken))), 0)
        assert (spans(selected), selected.position) == ([(0, 2)], 2)
        assert "cut off" in str(selected.refused)


def test_times_at_the_ends_of_64_bits_are_carried_as_a_consumer_adds_them_up() -> None:
    """Java's long begins again at the other end: so does what a record says beside its batch."""
    newest, oldest = (1 << 63) - 1, -(1 << 63)
    late = bytearray(data(0, 2))
    late[27:35] = newest.to_bytes(8, "big")
    early = bytearray(data(2, 2))
    early[27:35] = oldest.to_bytes(8, "big", signed=True)
    selected = select_batches(answer(sealed(bytes(late)), sealed(bytes(early))), 0)
    assert selected.refused is None
    (merged,) = selected.batches
    assert [record.timestamp for record in decode_records(merged._replace(base=0, end=4))] == [
        newest,
        oldest,
        oldest,
        oldest + 1,
    ]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_the_position_inside_a_batch(codec: str) -> None:
    batch = data(10, 6, codec=codec)
    selected = select_batches(answer(batch, data(16)), 13, terms=RepackTerms(small=0))
    assert seen(selected.batches) == of(batch)[3:] + of(data(16))
    assert spans(selected) == [(13, 3), (16, 1)]


def test_the_position_inside_a_hole_at_a_batchs_end() -> None:
    selected = select_batches(answer(data(10, offsets=(0, 1), span=9), data(30)), 15)
    assert (spans(selected), selected.position) == ([(30, 1)], 31)
    holed = data(10, offsets=(0, 1), span=9)
    last = BatchChecksum(10, holed[17:21], len(holed))
    assert select_batches(answer(holed), 15) == SelectedBatches([], 19, 0, holes=True, last_batch=last)


def test_append_time_is_what_a_consumer_of_the_source_sees() -> None:
    batch = sealed(with_attributes(data(0, 4), 0x08))
    selected = select_batches(answer(batch), 0)
    assert seen(selected.batches) == of(batch)
    assert {time for _, time, *_ in seen(selected.batches)} == {decode_batch_header(batch).max_timestamp}


def test_gaps_between_merged_batches() -> None:
    log = (data(0, 2), commit(2, 7), transactional(3, 2, 7), abort(5, 7), emptied(6, 3), data(9), data(12, 3))
    selected = select_batches(answer(*log), 0, ((7, 3),))
    (only,) = selected.batches
    assert only.spans == ((0, 2), (9, 1), (12, 3))
    assert (only.base, only.end, selected.position) == (0, 15, 15)
    assert seen([only]) == of(log[0]) + of(log[5]) + of(log[6])


def test_one_small_batch_alone_is_passed_as_it_is() -> None:
    for log in ((data(0, 3),), (data(0, 3), commit(3, 7)), (data(0, 3), data(3, 2, codec="gzip"))):
        selected = select_batches(answer(*log), 0)
        assert [bytes(batch.data) for batch in selected.batches] == [each for each in log if each != commit(3, 7)]


def test_large_batches_are_never_touched_and_stay_in_order() -> None:
    large = data(2, 3, size=SMALL_BATCH_BYTES)
    log = (data(0), data(1), large, data(5), large[:0] + data(6, 3, size=SMALL_BATCH_BYTES), data(9), data(10))
    selected = select_batches(answer(*log), 0)
    assert [batch.base for batch in selected.batches] == [0, 2, 5, 6, 9]
    assert bytes(selected.batches[1].data) == large
    assert seen(selected.batches) == [record for batch in log for record in of(batch)]


def test_batches_of_other_codecs_and_lanes_are_not_merged() -> None:
    log = [
        data(0),
        data(1),
        data(2, codec="gzip"),
        data(3, codec="gzip"),
        data(4, producer_id=8),
        data(5, producer_id=8),
    ]
    assert spans(select_batches(answer(*log), 0)) == [(0, 2), (2, 2), (4, 2)]
    assert [batch.records for batch in select_batches(answer(*log[:2], *log[4:]), 0).batches] == [4]
    by_producer = RepackTerms(merge_group=lambda batch: batch.producer_id)
    merged = select_batches(answer(*log[:2], *log[4:]), 0, terms=by_producer).batches
    assert [(batch.records, batch.producer_id) for batch in merged] == [(2, -1), (2, 8)]


def test_batches_for_a_target_far_away_are_merged_though_they_are_larger() -> None:
    """Five of a partition may be on their way, so they must hold more."""
    near = RepackTerms()
    far = choose_merging(near, is_far=True)
    log = [data(at, size=20_000) for at in range(8)]
    assert len(select_batches(answer(*log), 0, terms=near).batches) == 8
    (merged,) = select_batches(answer(*log), 0, terms=far).batches
    assert [record.offset for record in decode_records(merged._replace(base=0, end=8))] == list(range(8))
    assert choose_merging(far, is_far=False) == near
    assert choose_merging(far, is_far=True) is far
    assert choose_merging(RepackTerms(small=0), is_far=True) == RepackTerms(small=0)


def test_merged_batches_are_full_at_some_point() -> None:
    log = [data(at, size=1_000) for at in range(400)]
    batches = select_batches(answer(*log), 0).batches
    assert 3 <= len(batches) <= 6
    assert all(len(batch.data) <= MERGED_BATCH_BYTES for batch in batches)
    assert seen(batches) == [record for batch in log for record in of(batch)]


def test_a_damaged_small_batch_is_passed_on_to_be_refused_by_the_target() -> None:
    """Never with a new CRC. Alone and whole it is the target that says so; to be opened, it stops here."""
    bad = damaged(data(1))
    first = select_batches(answer(bad), 1)
    assert [bytes(batch.data) for batch in first.batches] == [bad]
    second = select_batches(answer(bad, data(2), data(3)), 1)
    assert bytes(second.batches[0].data) == bad
    assert seen(second.batches[1:]) == of(data(2)) + of(data(3))
    third = select_batches(answer(data(0), bad, data(2)), 0)
    assert third.refused is not None
    assert "source offset 1: is damaged" in str(third.refused)
    assert (seen(third.batches), third.position) == (of(data(0)), 1)


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def big(base: int, sizes: list[int], codec: str = "none") -> bytes:
    records = [BatchRecord(at, NOW, b"k%d" % at, noise(size, at)) for at, size in enumerate(sizes)]
    return assign_batch_offset(build_batch(records, codec=codec), base, 0)


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("most", [700, 1_000, 5_000, 30_000])
def test_above_the_limit_is_cut(codec: str, most: int) -> None:
    batch = big(50, [100, 400, 30, 0, 500, 200] * 8, codec)
    selected = select_batches(answer(batch), 50, terms=RepackTerms(TargetLimits(most)))
    assert seen(selected.batches) == of(batch)
    assert max(len(each.data) for each in selected.batches) <= most
    assert (len(selected.batches) > 1) == (len(batch) > most)
    assert [each.base for each in selected.batches[1:]] == [each.end for each in selected.batches[:-1]]
    assert selected.batches[-1].end == 98


def test_a_hole_at_the_end_belongs_to_the_last_piece() -> None:
    batch = data(0, offsets=(0, 1, 5, 6), span=20, size=300)
    selected = select_batches(answer(batch), 0, terms=RepackTerms(TargetLimits(800)))
    assert [(each.base, each.end, each.spans) for each in selected.batches] == [
        (0, 2, ((0, 2),)),
        (5, 20, ((5, 2),)),
    ]


def test_what_a_codec_makes_larger_goes_without() -> None:
    batch = big(0, [900, 5], "gzip")
    most = len(big(0, [900])) + 1
    selected = select_batches(answer(batch), 0, terms=RepackTerms(TargetLimits(most)))
    assert [each.codec for each in selected.batches] == [0, 1]
    assert seen(selected.batches) == of(batch)


def test_a_record_that_no_batch_can_hold_stops_the_copy() -> None:
    batch = big(40, [10, 3_000, 20])
    selected = select_batches(answer(data(0, 2), batch, data(43)), 0, terms=RepackTerms(TargetLimits(1_000)))
    assert selected.refused is not None
    assert "the record at source offset 41 takes 3072 bytes by itself, and the target takes 1000" in str(
        selected.refused
    )
    assert (seen(selected.batches), selected.position) == (of(data(0, 2)), 2)


def test_a_large_record_that_packs_well_is_sent_packed() -> None:
    records = [
        BatchRecord(0, NOW, b"k", b"a"),
        BatchRecord(1, NOW, b"k", b"b" * 50_000),
        BatchRecord(2, NOW, b"k", noise(2_000)),
    ]
    batch = assign_batch_offset(build_batch(records, codec="gzip"), 0, 0)
    selected = select_batches(answer(batch), 0, terms=RepackTerms(TargetLimits(2_300)))
    assert seen(selected.batches) == of(batch)
    assert len(selected.batches) == 2


def test_with_isolation_it_is_handed_over_and_the_others_travel_on() -> None:
    batch = big(40, [10, 3_000, 20])
    selected = select_batches(answer(batch), 40, terms=RepackTerms(TargetLimits(1_000), isolate=True))
    assert selected.refused is None
    assert [offset for offset, *_ in seen(selected.batches)] == [40, 42]
    (out,) = selected.rejected
    assert (out.source_offset, out.key, out.value) == (41, b"k1", noise(3_000, 1))
    assert out.reason.startswith("takes 3072 bytes")


def test_refused_records_are_handed_over_as_they_stood() -> None:
    records = [
        BatchRecord(0, NOW, b"k", b"v"),
        BatchRecord(1, NOW + 1, None, b"", (("h", b"1"), ("h", None), ("", b""))),
        BatchRecord(2, NOW + 2, b"", None),
        BatchRecord(3, NOW + 3, b"l", b"w"),
    ]
    batch = assign_batch_offset(build_batch(records, codec="gzip"), 70, 0)
    terms = RepackTerms(refused={71: "no key", 72: "too old", 999: "another batch's"})
    selected = select_batches(answer(batch, data(74)), 70, terms=terms)
    assert [offset for offset, *_ in seen(selected.batches)] == [70, 73, 74]
    assert selected.rejected == (
        RejectedRecord(71, NOW + 1, None, b"", ((b"h", b"1"), (b"h", None), (b"", b"")), "no key"),
        RejectedRecord(72, NOW + 2, b"", None, (), "too old"),
    )
    assert selected.position == 75


def test_a_batch_of_refused_records_only_is_a_gap() -> None:
    selected = select_batches(
        answer(data(0), data(1, 2, size=SMALL_BATCH_BYTES), data(3)), 0, terms=RepackTerms(refused={1: "", 2: ""})
    )
    assert spans(selected) == [(0, 1), (3, 1)]
    assert [out.source_offset for out in selected.rejected] == [1, 2]
    alone = select_batches(answer(data(1, 2)), 1, terms=RepackTerms(refused={1: "", 2: ""}))
    assert (alone.batches, alone.position, len(alone.rejected)) == ([], 3, 2)


def test_refused_records_below_the_position_were_handed_over_before() -> None:
    selected = select_batches(answer(data(0, 4)), 2, terms=RepackTerms(refused={1: "", 3: ""}))
    assert [offset for offset, *_ in seen(selected.batches)] == [2]
    assert [out.source_offset for out in selected.rejected] == [3]


def test_small_batches_that_hold_much_pass_as_they_are() -> None:
    packed = [data(at, size=MERGED_BATCH_BYTES + at, codec="gzip") for at in range(4)]
    assert all(len(batch) < SMALL_BATCH_BYTES for batch in packed)
    selected = select_batches(answer(*packed, data(4), data(5)), 0)
    assert [bytes(batch.data) for batch in selected.batches[:4]] == packed
    assert spans(selected)[4:] == [(4, 2)]


def test_an_answer_opens_a_bounded_part_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repack, "MAX_OPENED_BYTES", 300_000)
    log = [data(2 * at, offsets=(1,), size=100_000, codec="gzip") for at in range(7)]
    position, answers = 0, []
    while position < 14:
        rest = [batch for batch in log if decode_batch_header(batch).last_offset >= position]
        selected = select_batches(answer(*rest), position)
        answers.append([offset for offset, *_ in seen(selected.batches)])
        position = selected.position
    assert answers == [[1, 3, 5], [7, 9, 11], [13]]


def test_behind_the_bound_what_can_pass_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repack, "MAX_OPENED_BYTES", MERGED_BATCH_BYTES)
    huge = [data(at, size=MERGED_BATCH_BYTES, codec="gzip") for at in range(2)]
    selected = select_batches(answer(*huge, data(2), data(3), data(4)), 0)
    assert spans(selected) == [(at, 1) for at in range(5)]
    assert selected.position == 5


def test_what_must_be_opened_and_holds_too_much_names_the_true_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "MAX_DECOMPRESSED_BYTES", 1_000_000)
    selected = select_batches(answer(data(0, 2), data(2, offsets=(1,), size=1_000_001, codec="gzip"), data(4)), 0)
    assert isinstance(selected.refused, OversizedBatch)
    assert (selected.refused.state, selected.position) == ("unsupported", 2)
    assert "holds more than 1000000 bytes, and it cannot be passed on without being opened" in str(selected.refused)


class Turn:
    """Stands for the lock on large batches: whether it is held, and how often it was taken."""

    def __init__(self) -> None:
        self.taken, self.held = 0, False

    def acquire(self) -> None:
        assert not self.held
        self.taken, self.held = self.taken + 1, True

    def release(self) -> None:
        assert self.held
        self.held = False


@pytest.mark.parametrize("end", ["whole", "refused", "broken"])
def test_one_large_batch_is_opened_at_a_time(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several fetchers at once would each hold several times what a large batch holds."""
    turn, held = Turn(), list[bool]()
    monkeypatch.setattr(repack, "_LARGE", turn)
    monkeypatch.setattr(repack, "MAX_OPENED_BYTES", 50_000)
    monkeypatch.setattr(codecs, "MAX_DECOMPRESSED_BYTES", 99_000 if end == "refused" else 1_000_000)

    def observed(*args: Any) -> RawBatch:
        held.append(turn.held)
        if end == "broken":
            raise MemoryError
        return build_raw_batch(*args)

    monkeypatch.setattr(repack, "build_raw_batch", observed)
    with pytest.raises(MemoryError) if end == "broken" else nullcontext():
        selected = select_batches(answer(data(0, offsets=(1,), size=100_000, codec="gzip")), 0)
        assert (selected.refused is None) == (end == "whole")
    assert (turn.taken, turn.held) == (1, False)
    assert held == ([] if end == "refused" else [True])


def test_small_batches_wait_for_no_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = Turn()
    monkeypatch.setattr(repack, "_LARGE", turn)
    log = [data(2 * at, offsets=(1,), size=100_000, codec="gzip") for at in range(3)]
    assert spans(select_batches(answer(*log), 0)) == [(1, 1), (3, 1), (5, 1)]
    assert turn.taken == 0


@pytest.mark.parametrize(("count", "taken"), [(1_000, 0), (1_001, 1)])
def test_many_records_are_large(count: int, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of seven bytes takes 150 of memory."""
    turn = Turn()
    monkeypatch.setattr(repack, "_LARGE", turn)
    monkeypatch.setattr(repack, "MAX_OPENED_BYTES", 150_000)
    select_batches(answer(sealed(with_attributes(data(0, count, size=1, codec="gzip"), 0x09))), 0)
    assert (turn.taken, turn.held) == (taken, False)


def test_what_is_refused_keeps_nothing_that_was_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "MAX_DECOMPRESSED_BYTES", 1_000_000)
    refused = select_batches(answer(data(0, offsets=(1,), size=1_000_001, codec="gzip")), 0).refused
    assert isinstance(refused, OversizedBatch)
    assert (refused.__traceback__, refused.__context__) == (None, None)


def test_records_that_are_too_many_are_not_counted_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_MOST_RECORDS", 1_000)
    many = with_attributes(data(0, 1_001, codec="gzip"), 0x09)  # LogAppendTime: it has to be opened
    selected = select_batches(answer(sealed(many)), 0)
    assert isinstance(selected.refused, OversizedBatch)
    assert "holds 1001 records, more than 1000" in str(selected.refused)


@st.composite
def sources(draw: st.DrawFn) -> tuple[list[bytes], list[Seen]]:
    """A log of batches of all kinds, and what a consumer reads of it."""
    chance = random.Random(draw(st.integers(0, 10**9)))
    log, expected, at = [], [], 0
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(("plain", "plain", "holes", "append time", "marker", "emptied", "jump")))
        if kind == "marker":
            log.append(commit(at, 7))
            at += 1
            continue
        if kind == "emptied":
            log.append(emptied(at, 3))
            at += 3
            continue
        if kind == "jump":
            at += chance.randrange(1, 50)
        deltas = (
            sorted(chance.sample(range(12), chance.randrange(1, 9)))
            if kind == "holes"
            else range(chance.randrange(1, 9))
        )
        records = [
            BatchRecord(
                delta,
                NOW + chance.randrange(-1_000, 1_000),
                chance.choice((None, b"", b"key%d" % delta)),
                chance.choice((None, b"", noise(chance.choice((5, 90, 700, 9_000)), delta))),
                (("h", None), ("h", b"x")) if chance.random() < 0.3 else (),
            )
            for delta in deltas
        ]
        span = 12 if kind == "holes" else len(records)
        codec = chance.choice(("none", "none", "gzip"))
        batch = assign_batch_offset(build_batch(records, codec=codec, last_offset_delta=span - 1), at, 0)
        if kind == "append time":
            batch = sealed(with_attributes(batch, 0x08))
        log.append(batch)
        expected += of(batch)
        at += span
    return log, expected


@given(sources(), st.data())
@settings(max_examples=choose_examples(100, 300), deadline=None)
def test_any_log_fetched_in_any_pieces_arrives_as_it_is_seen(
    source: tuple[list[bytes], list[Seen]], draw: st.DataObject
) -> None:
    log, expected = source
    end = decode_batch_header(log[-1]).last_offset + 1
    start = draw.draw(st.integers(0, end))
    most = draw.draw(st.sampled_from((10_000, 20_000, 1 << 20)))
    compression = draw.draw(st.sampled_from((None, *(build_egress_compression(codec) for codec in CODEC_LEVELS))))
    refused = {offset: "why" for offset, *_ in expected if draw.draw(st.integers(0, 9)) == 0}
    small = draw.draw(st.sampled_from((0, SMALL_BATCH_BYTES, 1 << 20)))
    terms = RepackTerms(TargetLimits(most), refused, small=small, compression=compression)
    position, arrived, rejected = start, [], []
    while position < end:
        rest = [batch for batch in log if decode_batch_header(batch).last_offset >= position]
        pieces = rest[: draw.draw(st.integers(1, 4))]
        selected = select_batches(answer(*pieces), position, terms=terms)
        assert selected.refused is None, selected.refused
        assert selected.position == decode_batch_header(pieces[-1]).last_offset + 1
        assert all(len(batch.data) <= most for batch in selected.batches)
        arrived += seen(selected.batches)
        rejected += [each.source_offset for each in selected.rejected]
        position = selected.position
    assert arrived == [each for each in expected if each[0] >= start and each[0] not in refused]
    assert rejected == [offset for offset in refused if offset >= start]
