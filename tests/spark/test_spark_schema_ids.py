"""Proving a copy whose schema ids were translated: the same translation, done to the source before it is hashed."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.replicator.registries import flow, framed, two
from watershed.clusters.record_batch import BatchRecord, assign_batch_offset, build_batch
from watershed.clusters.registry.schema import Schema
from watershed.clusters.registry.schema_id_translation import SideSchemaIds, rewrite_schema_id
from watershed.spark.fingerprint import fingerprint_slices
from watershed.spark.reading.batch_decoding import locate_records, split_checked_batches
from watershed.spark.reading.schema_id_pairs import NO_ID_REWRITE, KeyValueIdPairs
from watershed.spark.reading.schema_id_rewrite import read_schema_id_pairs, rewrite_schema_ids

IDS: KeyValueIdPairs = (((3, 30),), ((101, 7), (102, 1 << 31), (103, 103)))
payloads = st.one_of(
    st.none(), st.binary(max_size=8), st.sampled_from([framed(id, b"x" * id) for id in (3, 101, 102, 103, 104)])
)


def slices(records: list[tuple[bytes | None, bytes | None]]):
    batch = build_batch([BatchRecord(at, 1_000 + at, key, value) for at, (key, value) in enumerate(records)])
    return locate_records(list(split_checked_batches(memoryview(assign_batch_offset(batch, 0, 0)))))


def expected(payload: bytes | None, pairs) -> bytes | None:
    if payload is None or len(payload) < 5 or payload[0] != 0:
        return payload
    id = int.from_bytes(payload[1:5], "big")
    return framed(dict(pairs).get(id, id), payload[5:])


@settings(deadline=None)
@given(st.lists(st.tuples(payloads, payloads), min_size=1, max_size=30))
def test_the_bytes_that_the_flow_writes(records) -> None:
    found = fingerprint_slices(rewrite_schema_ids(slices(records), IDS))
    wanted = fingerprint_slices(slices([(expected(key, IDS[0]), expected(value, IDS[1])) for key, value in records]))
    assert np.array_equal(found.fp, wanted.fp)
    for side, at in ((IDS[0], 0), (IDS[1], 1)):
        ids = SideSchemaIds("orders", dict(side or ()))
        assert [rewrite_schema_id(each[at], ids) for each in records] == [expected(each[at], side) for each in records]
    untouched = fingerprint_slices(rewrite_schema_ids(slices(records), NO_ID_REWRITE))
    assert np.array_equal(untouched.fp, fingerprint_slices(slices(records)).fp)


def test_ids_are_asked_of_both_registries_for_flows_that_translate() -> None:
    with two() as pair:
        pair.orders()
        pair.there.register("orders-value", Schema('"bytes"'))
        pair.there.register("orders-key", Schema('"string"'))
        found = read_schema_id_pairs(flow("translate"), pair.sides.source, pair.sides.target, ["orders", "orders-raw"])
        assert found == {"orders": (((104, 2),), ()), "orders-raw": (None, None)}
        assert read_schema_id_pairs(flow("preserve"), pair.sides.source, pair.sides.target, ["orders"]) == {}
