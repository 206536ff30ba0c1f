"""The parts of `bench.scale` that need no brokers."""

from __future__ import annotations

from tests.replicator.build import data
from watershed.bench.bare_copy import build_header_rewrites
from watershed.replicator.batch.record_batch import decode_batches


def test_a_copy_without_a_worker_sends_what_stands_behind_its_position_with_numbers_that_follow() -> None:
    stored = memoryview(data(10, 5) + data(15, 2) + data(17, 3))
    sent = list(build_header_rewrites(stored, 15, 40, producer_id=7))
    assert [(behind, following) for _, behind, following in sent] == [(17, 42), (20, 45)]
    batches = [next(iter(decode_batches(memoryview(b"".join(pieces))))) for pieces, _, _ in sent]
    assert [(each.producer_id, each.base_sequence, each.records) for each in batches] == [(7, 40, 2), (7, 42, 3)]
    payloads = [bytes(each.data[61:]) for each in decode_batches(stored)]
    assert [bytes(each.data[61:]) for each in batches] == payloads[1:]
