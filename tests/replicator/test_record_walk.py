"""Records of many batches are found at once, whatever their sizes, and what is damaged is told of its batch alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from watershed.clusters.varints import decode_zigzag
from watershed.replicator.batch.record_columns import RecordBodies, decode_record_bodies_at_once
from watershed.replicator.batch.records import RawRecord, build_raw_batch, encode_key_and_value

HEADER = 61


def build_body(sizes: Sequence[int]) -> bytes:
    records = [RawRecord(at, 1_000, encode_key_and_value(None, b"v" * size)) for at, size in enumerate(sizes)]
    return bytes(build_raw_batch(records, 0, len(records)).data[HEADER:])


def join(bodies: Sequence[bytes], counts: Sequence[int]) -> RecordBodies:
    stops = np.cumsum([len(body) for body in bodies])
    starts = stops - [len(body) for body in bodies]
    zeros = np.zeros(len(bodies), dtype=np.int64)
    return RecordBodies(memoryview(b"".join(bodies)), starts, stops, np.array(counts, dtype=np.int64), zeros, zeros)


def list_places(body: bytes, count: int, base: int) -> list[tuple[int, int]]:
    """(where the rest of a record begins, its size), one record after the other."""
    found, at = [], 0
    for _ in range(count):
        length, at = decode_zigzag(body, at)
        end, rest = at + length, at + 1  # behind the attributes
        for _ in range(2):
            _, rest = decode_zigzag(body, rest)
        found.append((base + rest, end - rest))
        at = end
    return found


@pytest.mark.parametrize("batches", [1, 5, 23, 24, 25, 80])
@pytest.mark.parametrize("largest", [3, 200, 9_000])
def test_records_are_found_where_they_are_one_by_one(batches: int, largest: int) -> None:
    """From 8,192 bytes on, a length has three bytes."""
    chance = random.Random(batches * largest)
    sizes = [[chance.randrange(largest) for _ in range(chance.choice((1, 2, 9, 40)))] for _ in range(batches)]
    bodies = [build_body(each) for each in sizes]
    found, is_readable = decode_record_bodies_at_once(join(bodies, [len(each) for each in sizes]))
    assert is_readable.all()
    begins = np.cumsum([0, *map(len, bodies)]).tolist()
    expected = [
        place
        for body, each, base in zip(bodies, sizes, begins, strict=False)
        for place in list_places(body, len(each), base)
    ]
    assert list(zip(found.rests.tolist(), found.sizes.tolist(), strict=True)) == expected


@pytest.mark.parametrize("batches", [3, 40])
@pytest.mark.parametrize("length", [b"\x03", b"\x83\x01", b"\xff\xff\x7f", b"\xfe\xff\xff\xff\x0f", b"\x7e"])
def test_a_length_that_makes_no_sense_is_told_of_its_batch_alone(batches: int, length: bytes) -> None:
    """Negative, much too large, or another one than the record has."""
    bodies = [build_body([20] * 30) for _ in range(batches)]
    for broken, record in ((1, 0), (2, 29)):
        body = bodies[broken]
        at = record * (len(body) // 30)
        bodies[broken] = body[:at] + length + body[at + len(length) :]
    _, is_readable = decode_record_bodies_at_once(join(bodies, [30] * batches))
    assert is_readable.tolist() == [at not in (1, 2) for at in range(batches)]
