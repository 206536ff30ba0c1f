"""Small batches that are merged many at a time: the same as one after the other, byte for byte."""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from tests.replicator.build import (
    NOW,
    abort,
    answer,
    commit,
    damaged,
    data,
    emptied,
    old_format,
    transactional,
    with_attributes,
    with_crc,
)
from watershed.clusters.claim_rules import ClaimedPartition
from watershed.clusters.record_batch import BatchRecord, assign_batch_offset, build_batch, decode_batch_header
from watershed.replicator.batch import batch_selection, record_columns, repack, series_search
from watershed.replicator.batch.batch_selection import SelectedBatches, select_batches
from watershed.replicator.batch.codecs import CODEC_NAMES, ZSTD, compress_payload
from watershed.replicator.batch.filler_batch import build_filler_batch
from watershed.replicator.batch.record_batch import walk_batch_lengths
from watershed.replicator.batch.record_columns import OpenedRecords
from watershed.replicator.batch.repack import FAR_MERGED_BATCH_BYTES, MERGED_BATCH_BYTES, SHORTEST_SERIES, RepackTerms
from watershed.replicator.copy.loop_guard import LoopGuard
from watershed.replicator.limits import TargetLimits

AT_ONCE = RepackTerms(takes_all_of=lambda _producer_id: True)
ONE_BY_ONE = RepackTerms()


def seen(selected: SelectedBatches) -> tuple[SelectedBatches, str]:
    """All that it says; an error as its text."""
    return selected._replace(refused=None), repr(selected.refused)


def one(base: int, value: bytes | None = b"{}", **batch: int) -> bytes:
    """A batch of one record."""
    built = build_batch([BatchRecord(0, NOW + base, None, value)], producer_id=batch.get("producer_id", -1))
    return assign_batch_offset(built, base, batch.get("epoch", 0))


def compressed(batch: bytes, codec: int) -> bytes:
    """The same batch with its records compressed."""
    changed = bytearray(batch[:61] + compress_payload(codec, batch[61:]))
    changed[8:12] = struct.pack(">i", len(changed) - 12)
    changed[22] |= codec
    return with_crc(bytes(changed))


def rebuilt_columns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of records of each batch that is built from columns from now on."""
    counts, build = list[int](), OpenedRecords.build_raw_batch

    def counted(columns: OpenedRecords, *rest: Any) -> object:
        counts.append(len(columns))
        return build(columns, *rest)

    monkeypatch.setattr(OpenedRecords, "build_raw_batch", counted)
    return counts


@pytest.mark.parametrize("records", [1, 2, 10, 60])
def test_small_batches_are_merged_as_one_by_one(records: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = rebuilt_columns(monkeypatch)
    log = answer(*(data(at * records, records, size=100) for at in range(4_000 // records)))
    merged = select_batches(log, 0, terms=AT_ONCE)
    assert seen(merged) == seen(select_batches(log, 0, terms=ONE_BY_ONE))
    assert sum(counts) == 4_000 // records * records, "all of them at once"
    assert max(len(batch.data) for batch in merged.batches) <= MERGED_BATCH_BYTES < 2 * len(merged.batches[0].data)


@pytest.mark.parametrize("codec", range(1, len(CODEC_NAMES)), ids=CODEC_NAMES[1:])
def test_compressed_batches_are_merged_as_one_by_one(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = rebuilt_columns(monkeypatch)
    log = answer(*(compressed(data(at * 10, 10, size=100), codec) for at in range(300)))
    merged = select_batches(log, 0, terms=AT_ONCE)
    assert seen(merged) == seen(select_batches(log, 0, terms=ONE_BY_ONE))
    assert (sum(counts), {batch.codec for batch in merged.batches}) == (3_000, {codec})


def test_what_packs_much_into_small_batches_is_not_all_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 KB each: 16 MiB of opened records are 167 of them. The others pass as they are."""
    batch = data(0, size=100_000, codec="gzip")
    log = [assign_batch_offset(batch, at, 0) for at in range(300)]
    selected = select_batches(answer(*log), 0, terms=AT_ONCE)
    assert seen(selected) == seen(select_batches(answer(*log), 0, terms=ONE_BY_ONE))
    assert [bytes(batch.data) for batch in selected.batches[-130:]] == log[-130:]


def test_few_batches_are_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = rebuilt_columns(monkeypatch)
    few = answer(*map(one, range(SHORTEST_SERIES - 1)))
    assert seen(select_batches(few, 0, terms=AT_ONCE)) == seen(select_batches(few, 0, terms=ONE_BY_ONE))
    assert counts == []
    select_batches(answer(*map(one, range(SHORTEST_SERIES))), 0, terms=AT_ONCE)
    assert counts == [SHORTEST_SERIES]


def test_committed_transactions_of_a_record_are_one_series(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = rebuilt_columns(monkeypatch)
    log = [part for at in range(0, 200, 2) for part in (transactional(at, 1, 7), commit(at + 1, 7))]
    selected = select_batches(answer(*log), 0, terms=AT_ONCE)
    assert seen(selected) == seen(select_batches(answer(*log), 0, terms=ONE_BY_ONE))
    assert counts == [100]
    assert selected.batches[0].spans == tuple((at, 1) for at in range(0, 200, 2))


def test_an_answer_with_an_aborted_transaction_is_taken_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = rebuilt_columns(monkeypatch)
    log = [*map(one, range(50)), transactional(50, 1, 7), abort(51, 7)]
    selected = select_batches(answer(*log), 0, ((7, 50),), terms=AT_ONCE)
    assert (sum(batch.records for batch in selected.batches), selected.position, counts) == (50, 52, [])


def test_producers_whose_batches_are_judged_one_by_one_are_left_to_that(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = rebuilt_columns(monkeypatch)
    log = answer(*(one(at, producer_id=8 if at == 60 else 9) for at in range(120)))
    left_out: Callable[[object], bool] = lambda batch: batch.producer_id == 8  # type: ignore[attr-defined] # noqa: E731
    terms = RepackTerms(takes_all_of=lambda producer_id: producer_id == 9)
    selected = select_batches(log, 0, leave_out=left_out, terms=terms)
    assert seen(selected) == seen(select_batches(log, 0, leave_out=left_out, terms=ONE_BY_ONE))
    assert selected.batches[0].spans == ((0, 60), (61, 59))
    assert counts == [], "what waits when a batch comes between goes on one by one"


def test_filler_is_left_out_of_a_series() -> None:
    """Of another flow into the source, by whoever takes all that is not filler."""
    log, expected = [], []
    for at in range(0, 160, 2):
        filler = at in (60, 62, 120)
        header, payload = build_filler_batch(2, 9, 0, at)
        batch = header + payload if filler else compressed(data(0, 2, size=100, producer_id=9), ZSTD)
        log.append(assign_batch_offset(batch, at, 0))
        expected += [] if filler else [at, at + 1]
    guard = LoopGuard("onprem", "cloud", "all", dict, lambda *_: True, guarded=False).at(
        ClaimedPartition("orders", uuid.UUID(int=1), 0)
    )
    for takes_all_of in (guard.takes_all_of, ONE_BY_ONE.takes_all_of):
        selected = select_batches(answer(*log), 0, leave_out=guard, terms=RepackTerms(takes_all_of=takes_all_of))
        found = [batch.source_offset(index) for batch in selected.batches for index in range(batch.records)]
        assert found == expected


def test_a_batch_that_is_damaged_ends_the_series_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = rebuilt_columns(monkeypatch)
    log = [*map(one, range(100))]
    log[70] = damaged(log[70])
    selected = select_batches(answer(*log), 0, terms=AT_ONCE)
    assert seen(selected) == seen(select_batches(answer(*log), 0, terms=ONE_BY_ONE))
    assert "source offset 70: is damaged" in str(selected.refused)
    assert (selected.position, counts) == (70, [70])


@pytest.mark.parametrize("last_delta", [100, (1 << 31) - 1, -5])
def test_a_batch_that_claims_the_offsets_of_others_is_left_to_one_by_one(last_delta: int) -> None:
    log = [*map(one, range(100))]
    lying = bytearray(log[40])
    lying[23:27] = last_delta.to_bytes(4, "big", signed=True)
    log[40] = with_crc(bytes(lying))
    assert seen(select_batches(answer(*log), 0, terms=AT_ONCE)) == seen(
        select_batches(answer(*log), 0, terms=ONE_BY_ONE)
    )


@pytest.mark.parametrize("base", [-1, -(1 << 63), (1 << 62) + 1, (1 << 63) - 1])
def test_offsets_at_the_ends_of_64_bits_are_left_to_one_by_one(base: int) -> None:
    far = [struct.pack(">q", base) + one(0)[8:], *map(one, range(30))]
    for log in (far, far[::-1], [*map(one, range(30)), *far]):
        assert seen(select_batches(answer(*log), 0, terms=AT_ONCE)) == seen(
            select_batches(answer(*log), 0, terms=ONE_BY_ONE)
        )


def test_a_target_that_takes_less_gets_smaller_batches() -> None:
    log = answer(*(data(at, size=100) for at in range(300)))
    for most in (300, 3_000, 20_000):
        selected = select_batches(log, 0, terms=replace(AT_ONCE, limits=TargetLimits(most)))
        assert seen(selected) == seen(select_batches(log, 0, terms=RepackTerms(TargetLimits(most))))
        assert max(len(batch.data) for batch in selected.batches) <= most


def test_varints_of_every_length_are_written_as_by_the_plain_encoder() -> None:
    steps = [
        0,
        1,
        -1,
        63,
        64,
        8191,
        8192,
        *(sign << bits for bits in range(7, 63) for sign in (1, -1)),
        -(1 << 63) - NOW,
    ]
    times = [NOW + step for step in steps]
    log = [assign_batch_offset(build_batch([BatchRecord(0, time, b"k", b"v")]), at, 0) for at, time in enumerate(times)]
    assert seen(select_batches(answer(*log), 0, terms=AT_ONCE)) == seen(
        select_batches(answer(*log), 0, terms=ONE_BY_ONE)
    )


def test_walked_lengths_are_those_of_the_batches() -> None:
    log = [*map(one, range(5)), old_format(5, 1), data(6, 3)]
    edges = walk_batch_lengths(answer(*log))
    assert [stop - at for at, stop in pairwise(edges)] == [len(batch) for batch in log]
    assert walk_batch_lengths(answer(*log)[:-1]) == edges[:-1]
    assert walk_batch_lengths(memoryview(b"")) == [0]
    short = bytearray(one(0))
    short[8:12] = struct.pack(">i", 48)
    assert walk_batch_lengths(answer(one(0), bytes(short), one(1))) == [0, len(one(0))]


class Log:
    """Random batches. Most are such as a series holds, and every other kind comes in between."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.batches: list[bytes] = []
        self.end, self.epoch = self.chance.choice((0, 1_000, (1 << 40))), 3
        self.others = self.chance.choice((0.0, 0.02, 0.1, 0.5))
        self.codecs = self.chance.choice(((0,), (0,), (4,), (3,), (0, 1, 1, 1, 1, 1, 2)))
        self.most_records = self.chance.choice((1, 1, 3, 12, 90))
        for _ in range(self.chance.randrange(1, 120)):
            is_other = self.chance.random() < self.others
            self.batches.append(self.chance.choice(OTHERS)(self) if is_other else self._plain())

    def _time(self) -> int:
        kinds = (NOW, NOW + self.chance.randrange(-1_000, 1_000), NOW + self.chance.randrange(-(1 << 36), 1 << 36))
        return self.chance.choice((*kinds, *kinds, *kinds, -1, 0, (1 << 63) - 1, -(1 << 63), NOW << 10))

    def _records(self) -> list[BatchRecord]:
        chance, first = self.chance, self._time()
        near = chance.random() < 0.9
        return [
            BatchRecord(
                at,
                max(min(first + chance.randrange(-50, 50), (1 << 63) - 1), -(1 << 63)) if near else self._time(),
                chance.choice((None, None, b"", b"k", b"key" * 30)),
                chance.choice((None, b"", b"v" * chance.randrange(300), b"w" * 63, b"x" * 64, chance.randbytes(40))),
                (("h", None), ("", b""), ("trace", b"x" * 70)) if chance.random() < 0.1 else (),
            )
            for at in range(chance.randrange(1, self.most_records + 1))
        ]

    def _stored(self, batch: bytes, offsets: int) -> bytes:
        stored = assign_batch_offset(batch, self.end, self.epoch)
        self.end += offsets
        return stored

    def _plain(self, **terms: object) -> bytes:
        records = self._records()
        first = records[0].timestamp
        records = [replace(record, timestamp=_near(record.timestamp, first)) for record in records]
        producer = self.chance.choice((-1, 7, 7, 7, 8))
        batch = build_batch(records, producer_id=producer, **terms)  # type: ignore[arg-type]
        codec = self.chance.choice(self.codecs)
        return self._stored(compressed(batch, codec) if codec and not terms else batch, len(records))

    def _transactional(self) -> bytes:
        return self._plain(transactional=True)

    def _packed(self) -> bytes:
        return self._plain(codec="gzip")

    def _damaged(self) -> bytes:
        return damaged(self._plain())

    def _marker(self) -> bytes:
        return self._stored((commit if self.chance.random() < 0.5 else abort)(0, 7), 1)

    def _odd_marker(self) -> bytes:
        """With bytes that no broker writes: it may be cut off, or its numbers longer."""
        marker = bytearray(commit(0, 7))
        at = self.chance.randrange(61, len(marker))
        marker[at] = self.chance.randrange(256)
        cut = self.chance.choice((len(marker), self.chance.randrange(61, len(marker))))
        marker[8:12] = struct.pack(">i", cut - 12)
        return self._stored(bytes(marker[:cut]), 1)

    def _holes(self) -> bytes:
        held = [replace(record, offset=2 * record.offset, timestamp=NOW) for record in self._records()]
        return self._stored(build_batch(held, last_offset_delta=2 * len(held)), 2 * len(held) + 1)

    def _jump(self) -> bytes:
        self.end += self.chance.randrange(1, 9)
        return self._plain()

    def _emptied(self) -> bytes:
        return self._stored(emptied(0, 3), 3)

    def _epoch(self) -> bytes:
        self.epoch += 1
        return self._plain()

    def _append_time(self) -> bytes:
        return with_crc(with_attributes(self._plain(), 0x08))

    def _horizon(self) -> bytes:
        return with_crc(with_attributes(self._plain(), 0x40))

    def _large(self) -> bytes:
        size = self.chance.choice((7_900, 8_100, 8_192, 20_000))
        return self._stored(build_batch([BatchRecord(0, NOW, b"k", b"v" * size)]), 1)

    def _mutated(self) -> bytes:
        """Other bytes with a right CRC: what is said contradicts itself, or is said otherwise than producers do."""
        batch = bytearray(self._plain())
        at = self.chance.choice((*range(61, min(70, len(batch))), self.chance.randrange(21, len(batch))))
        batch[at] = self.chance.choice((0, 1, 0x7F, 0x80, 0xFF, self.chance.randrange(256)))
        return with_crc(bytes(batch))

    def _longer_numbers(self) -> bytes:
        """A record whose numbers take more bytes than they need."""
        length = self.chance.randrange(1, 11)
        numbers = [bytes([byte | 0x80]) + b"\x80" * (length - 1) + b"\0" for byte in (0, 0)]
        rest = b"\x01\x02v\0"
        body = b"\0" + b"".join(numbers) + rest
        whole = bytearray(build_batch([BatchRecord(0, NOW, None, b"")])[:61] + bytes([2 * len(body)]) + body)
        whole[8:12] = struct.pack(">i", len(whole) - 12)
        return self._stored(with_crc(bytes(whole)), 1)


def _near(time: int, first: int) -> int:
    """So that its delta has 64 bits."""
    return time if -(1 << 62) < time - first < 1 << 62 else first


OTHERS = (
    Log._transactional,
    Log._packed,
    Log._damaged,
    Log._marker,
    Log._odd_marker,
    Log._holes,
    Log._jump,
    Log._emptied,
    Log._epoch,
    Log._append_time,
    Log._horizon,
    Log._large,
    Log._mutated,
    Log._longer_numbers,
)


@given(st.integers(0, 10**12), st.data())
@settings(max_examples=choose_examples(400, 5_000), deadline=None)
def test_any_answer_is_selected_as_one_by_one(seed: int, draw: st.DataObject) -> None:
    log = Log(seed)
    first = decode_batch_header(log.batches[0]).base_offset
    fetched = answer(*log.batches)
    fetched = fetched[: len(fetched) - draw.draw(st.sampled_from((0, 0, 1, 70)))]
    position = draw.draw(st.sampled_from((first, first, first + 1, max(first - 1, 0), (first + log.end) // 2)))
    refused = draw.draw(st.lists(st.integers(first, log.end), max_size=3)) if draw.draw(st.booleans()) else []
    terms = RepackTerms(
        TargetLimits(draw.draw(st.sampled_from((1 << 20, 1 << 20, 30_000, 700)))),
        dict.fromkeys(refused, "why"),
        isolate=draw.draw(st.booleans()),
        small=draw.draw(st.sampled_from((8 << 10, 8 << 10, 200, 1 << 20))),
        merge_group=draw.draw(st.sampled_from((lambda _batch: None, lambda batch: batch.producer_id))),
        holes=draw.draw(st.sampled_from((lambda: True, lambda: True, lambda: False))),
        dense=draw.draw(st.booleans()),
        merged=draw.draw(st.sampled_from((600, 5_000, MERGED_BATCH_BYTES, FAR_MERGED_BATCH_BYTES))),
    )
    at_once = replace(terms, takes_all_of=draw.draw(st.sampled_from((lambda _id: True, lambda _id: _id != 8))))
    aborted = draw.draw(st.sampled_from(((), (), (), ((7, first + 5),))))
    with pytest.MonkeyPatch.context() as patch:
        shortest = draw.draw(st.sampled_from((2, 2, 5, SHORTEST_SERIES)))
        for module in (batch_selection, repack, series_search):
            patch.setattr(module, "SHORTEST_SERIES", shortest)
        patch.setattr(record_columns, "_FEW_RECORDS", draw.draw(st.sampled_from((2, 2, 20))))
        opened = draw.draw(st.sampled_from((3_000, 20_000, 16 << 20)))
        for module in (repack, series_search):
            patch.setattr(module, "MAX_OPENED_BYTES", opened)
        many = select_batches(fetched, position, aborted, terms=at_once)
        one_by_one = select_batches(fetched, position, aborted, terms=terms)
    assert seen(many) == seen(one_by_one)
