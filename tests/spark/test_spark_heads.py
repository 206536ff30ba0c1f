"""Headers of many batches at once, against the plain reader that takes one after the other."""

from __future__ import annotations

import random
import struct
from itertools import pairwise

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from watershed.clusters.claim_rules import UNBOUNDED_END_OFFSET, ClaimRule, PartitionClaims
from watershed.spark.reading.batch_decoding import (
    BatchView,
    CorruptBatch,
    OldMessageFormat,
    decode_batch_view,
    is_abort_marker,
    split_checked_batches,
)
from watershed.spark.reading.batch_digests import digest_batch, digest_batches, hash_payload
from watershed.spark.reading.batch_headers import (
    check_checksums,
    compute_last_offsets,
    decode_batch_headers,
    find_batch_edges,
    find_claimed_batches,
    find_counted_batches,
    find_next_offset,
    hash_payloads,
)

NOTHING: frozenset[int] = frozenset()
MARKER = bytes((0x10, 0, 0, 0, 8, 0, 0, 0))  # a record whose key is version 0, type 0: ABORT; type 1: COMMIT


def stored(base: int, size: int, *, attributes: int = 0, producer: int = -1, count: int = 3, delta: int = 2) -> bytes:
    """A batch with a payload that no reader of headers opens; of a marker, `count` 0 is ABORT and 1 COMMIT."""
    marker = MARKER + (b"\0\1" if count else b"\0\0") + bytes(2)
    payload = marker if attributes & 0x20 else random.Random(base).randbytes(size)
    checked = struct.pack(">hiqqqhii", attributes, delta, 1_000 + base, 2_000 + base, producer, 0, 0, count) + payload
    return struct.pack(">qiibI", base, 9 + len(checked), 0, 2, crc32c(checked)) + checked


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]], frozenset[int]]:
    """(batches, aborted transactions, producers to skip): transactions of three producers, some of them open."""
    out, aborted, base, began = b"", list[tuple[int, int]](), draw(st.integers(0, 2**40)), dict[int, int]()
    for _ in range(draw(st.integers(0, 12))):
        producer, kind = draw(st.integers(7, 9)), draw(st.sampled_from(("plain", "open", "abort", "commit", "empty")))
        if kind in ("abort", "commit"):
            if kind == "abort" and producer in began:
                aborted.append((producer, began[producer]))
            began.pop(producer, None)
            out += stored(base, 0, attributes=0x30, producer=producer, count=int(kind == "commit"), delta=0)
            base += 1
            continue
        if kind == "open":
            began.setdefault(producer, base)
        attributes = (0x10 if kind == "open" else 0) | draw(st.sampled_from((0, 4, 8)))
        delta = draw(st.integers(0, 5))
        count = 0 if kind == "empty" else draw(st.integers(1, delta + 1))
        out += stored(
            base, draw(st.integers(0, 90)), attributes=attributes, producer=producer, count=count, delta=delta
        )
        base += delta + 1 + draw(st.integers(0, 3))
    aborted += [(producer, first) for producer, first in began.items() if draw(st.booleans())]
    return out, draw(st.permutations(aborted)), draw(st.sampled_from((NOTHING, frozenset({8}))))


def committed(records: memoryview, listed: list[tuple[int, int]], skip: frozenset[int]) -> list[BatchView]:
    """The plain rule, as Java's consumer has it."""
    ahead, aborted, found = sorted(listed, key=lambda each: each[1]), set[int](), []
    for batch in split_checked_batches(records):
        while ahead and ahead[0][1] <= batch.last_offset:
            aborted.add(ahead.pop(0)[0])
        if batch.control:
            if is_abort_marker(batch.payload()):
                aborted.discard(batch.producer_id)
        elif batch.count and batch.producer_id not in skip | (aborted if batch.transactional else NOTHING):
            found.append(batch)
    return found


@given(answers(), st.integers(0, 200))
def test_all_at_once_finds_what_one_after_the_other_does(
    made: tuple[bytes, list[tuple[int, int]], frozenset[int]], cut: int
) -> None:
    whole, aborted, skip = made
    records = memoryview(whole)[: max(0, len(whole) - cut)]
    edges = find_batch_edges(records)
    heads = decode_batch_headers(records, edges)
    check_checksums(records, edges, heads)
    plain = list(split_checked_batches(records))
    assert [decode_batch_view(records, a, b) for a, b in pairwise(edges)] == plain
    assert compute_last_offsets(heads).tolist() == [batch.last_offset for batch in plain]
    assert find_next_offset(records, edges) == (plain[-1].last_offset + 1 if plain else -1)
    counts = find_counted_batches(records, edges, heads, aborted, skip)
    expected = committed(records, aborted, skip)
    assert [plain[row] for row in np.flatnonzero(counts)] == expected
    hashes = hash_payloads(records, edges, hash_payload)
    found = digest_batches(heads[counts], [hashes[row] for row in np.flatnonzero(counts)])
    assert found.digest.tolist() == [digest_batch(batch) for batch in expected]
    assert found.base.tolist() == [batch.base_offset for batch in expected]
    assert found.size.tolist() == [len(batch.raw) - 61 for batch in expected]


def numbers(*of: int) -> bytes:
    return np.array(of, dtype=np.int64).tobytes()


def test_producers_to_skip_are_believed_where_their_flow_claims_to_have_written() -> None:
    """Offsets of batches: 5 to 7, 8 to 10, 11 to 13, 14 to 16, all of producers to skip, sequence 0 and epoch 0."""
    records = memoryview(b"".join(stored(base, 20, producer=8) for base in (5, 8, 11, 14)))
    edges = find_batch_edges(records)
    heads = decode_batch_headers(records, edges)

    def counted(claims: PartitionClaims | None) -> list[int]:
        mask = find_counted_batches(records, edges, heads, (), frozenset({8}), claims=claims)
        return [int(base) for base in heads["base"][mask]]

    assert counted(None) == []
    assert counted(PartitionClaims()) == [5, 8, 11, 14]
    assert counted(PartitionClaims(firsts=numbers(8, 14), ends=numbers(14, 16))) == [5, 14], (
        "one that sticks out is not claimed"
    )
    assert counted(PartitionClaims(rules=(ClaimRule(8, 0, 1, 0, UNBOUNDED_END_OFFSET, 11),))) == [5, 8, 14], (
        "sequence 0 belongs to one place only"
    )
    assert counted(PartitionClaims(rules=(ClaimRule(8, 0, 1, 8, 14, -1),))) == [5, 14]
    assert counted(
        PartitionClaims(
            rules=(ClaimRule(9, 0, 1, 0, UNBOUNDED_END_OFFSET, -1), ClaimRule(8, 1, 2, 0, UNBOUNDED_END_OFFSET, -1))
        )
    ) == [5, 8, 11, 14]


def test_headers_and_rules_agree() -> None:
    """What tasks ask of many headers at once is what `Rule` says of one."""
    chance = random.Random(5)
    for _ in range(50):
        places = [(base, chance.choice((7, 8))) for base in range(0, 90, 3)]
        records = memoryview(b"".join(stored(base, 1, producer=producer) for base, producer in places))
        heads = decode_batch_headers(records, find_batch_edges(records))
        rules = tuple(
            ClaimRule(chance.choice((7, 8)), 0, chance.choice((0, 1, 2)), *sorted(chance.sample(range(99), 2)), base)
            for base in (-1, 3 * chance.randrange(30))
        )
        plain = [any(rule.covers(producer, 0, 0, at, at + 3) for rule in rules) for at, producer in places]
        assert find_claimed_batches(heads, PartitionClaims(rules)).tolist() == plain


def test_the_empty_batch_of_a_cleaned_marker_ends_nothing() -> None:
    """Kafka's cleaner keeps the last batch of a producer, without its records, also where that is a marker."""
    header = struct.pack(">hiqqqhii", 0x30, 0, -1, -1, 7, 0, -1, 0)
    emptied = struct.pack(">qiibI", 5, 9 + len(header), 0, 2, crc32c(header)) + header
    behind_it = stored(6, 40, attributes=0x10, producer=8) + stored(9, 40, attributes=0x10, producer=7)
    records = memoryview(emptied + behind_it)
    edges = find_batch_edges(records)
    heads = decode_batch_headers(records, edges)
    listed = [(8, 6)]
    assert find_counted_batches(records, edges, heads, listed, NOTHING).tolist() == [False, False, True]
    assert [batch.base_offset for batch in committed(records, listed, NOTHING)] == [9]


def test_headers_outlive_the_memory_they_were_received_in() -> None:
    records = memoryview(bytearray(stored(5, 40) + stored(8, 40)))
    heads = decode_batch_headers(records, find_batch_edges(records))
    records[:] = bytes(len(records))
    assert compute_last_offsets(heads).tolist() == [7, 10]


@pytest.mark.parametrize("at", [0, 1])
def test_a_wrong_byte_anywhere_is_found(at: int) -> None:
    pieces = [stored(5, 40), stored(8, 40)]
    for byte in range(21, len(pieces[at])):  # before: offset, length, epoch and magic, which no CRC is over
        damaged = bytearray(pieces[at])
        damaged[byte] ^= 1
        records = memoryview(b"".join(bytes(damaged) if each == at else pieces[each] for each in (0, 1)))
        edges = find_batch_edges(records)
        with pytest.raises(CorruptBatch, match=f"offset {5 + 3 * at}: checksum differs"):
            check_checksums(records, edges, decode_batch_headers(records, edges))


@pytest.mark.parametrize("length", [-1, -12, 0, 48, -(2**31)])
def test_a_length_that_no_batch_has_ends_the_reading(length: int) -> None:
    damaged = bytearray(stored(5, 400))
    damaged[8:12] = struct.pack(">i", length)
    for read in (find_batch_edges, lambda records: list(split_checked_batches(records))):
        with pytest.raises(CorruptBatch, match="at offset 5: a length of"):
            read(memoryview(damaged))


@pytest.mark.parametrize("size", [34, 80])
def test_messages_of_old_formats_are_told(size: int) -> None:
    message = struct.pack(">qiibb", 5, size - 12, 0, 1, 0) + bytes(size - 18)
    for read in (find_batch_edges, lambda records: list(split_checked_batches(records))):
        with pytest.raises(OldMessageFormat, match=r"offset 5 has format v1 .* write the topic anew"):
            read(memoryview(message))


def test_what_a_copy_keeps_is_what_a_digest_is_of() -> None:
    def digest(**changed: int) -> int:
        [found] = split_checked_batches(memoryview(stored(**{"base": 5, "size": 40} | changed)))  # type: ignore[arg-type]
        return digest_batch(found)

    assert digest(producer=77) == digest()
    assert digest(attributes=0x10) == digest()  # a flow may copy in transactions, or out of them
    others = [digest(size=41), digest(attributes=1), digest(attributes=8), digest(count=2), digest(delta=3)]
    assert len({digest(), *others}) == 6
