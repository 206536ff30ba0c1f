"""Schema ids in records: rewritten where there is another, waited for where there is none, left alone elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.replicator.build import NOW, answer
from tests.replicator.registries import Pair, cluster, flow, framed, two
from watershed.clusters.errors import Unreachable
from watershed.clusters.record_batch import (
    BatchRecord,
    assign_batch_offset,
    build_batch,
    decode_batch_header,
    decode_batch_records,
)
from watershed.clusters.registry.schema import Schema
from watershed.replicator.apply_refusals import CannotApply, refuse_changed_schema_ids
from watershed.replicator.batch.batch_selection import SelectedBatches, select_batches
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.copy.rejected_records import judge_refused_batch
from watershed.replicator.copy.schema_ids import FlowSchemaIds, SchemaIdCounts, SchemaIdTranslations
from watershed.replicator.errors import SchemaMissing
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.partition_states import Reinspect
from watershed.replicator.sync.schemas import SchemaKind
from watershed.replicator.worker.assignment import can_keep_copying
from watershed.topology.selectors import Selector
from watershed.topology.sync_settings import NameFilter

FLOW = flow("translate")
KEY = PartitionKey("a-to-b", "orders", "orders", 0)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with two() as found:
        yield found


def batch(*payloads: tuple[bytes | None, bytes | None], codec: str = "none", base: int = 0) -> bytes:
    records = [
        BatchRecord(at, NOW + at, key, value, (("h", b"\0\0\0\0\1"),)) for at, (key, value) in enumerate(payloads)
    ]
    return assign_batch_offset(build_batch(records, codec=codec), base, 0)


def ids_of(pair: Pair, flow_=FLOW) -> FlowSchemaIds:
    return FlowSchemaIds(flow_, pair.sides.source, pair.sides.target)


def copied(
    ids: FlowSchemaIds, *batches: bytes, key: PartitionKey = KEY, counted: SchemaIdCounts | None = None
) -> SelectedBatches:
    terms = RepackTerms(change=ids.changes(key, SchemaIdCounts() if counted is None else counted))
    return select_batches(answer(*batches), 0, terms=terms)


def payloads(selected: SelectedBatches) -> list[tuple[bytes | None, bytes | None]]:
    assert selected.refused is None
    return [(record.key, record.value) for each in selected.batches for record in decode_batch_records(each.data)]


def test_ids_of_keys_and_values_are_those_of_the_target(pair: Pair) -> None:
    first, second = pair.orders()
    SchemaKind().carry(FLOW, pair.sides, SchemaKind().compare(FLOW, pair.sides))
    one, two_, key = (
        pair.there.history(name)[at].id for name, at in (("orders-value", 0), ("orders-value", 1), ("orders-key", 0))
    )
    ids = ids_of(pair)
    assert ids.ask([KEY]) == {}
    counted = SchemaIdCounts()
    selected = copied(
        ids,
        batch((framed(104, b"k"), framed(first, b"\x02abc")), (None, framed(second, b""))),
        batch((b"k", None), (b"\0", b"plain"), (None, b"\0\0"), base=2),
        counted=counted,
    )
    assert payloads(selected) == [
        (framed(key, b"k"), framed(one, b"\x02abc")),
        (None, framed(two_, b"")),
        (b"k", None),
        (b"\0", b"plain"),
        (None, b"\0\0"),
    ]
    assert [each.headers for each in decode_batch_records(selected.batches[0].data)] == [(("h", b"\0\0\0\0\1"),)] * 5
    assert (counted.rewritten, counted.plain, counted.null) == (3, 2, 1)
    assert str(counted) == "schema ids: 2 records without a schema id and 1 records without a value passed as they are"


def test_indexes_of_protobuf_messages_stay(pair: Pair) -> None:
    text = 'syntax = "proto3"; message A {} message B { string a = 1; }'
    id = pair.here.register("orders-value", Schema(text, "PROTOBUF"))
    pair.there.register("orders-value", Schema(text.replace("; ", ";\n"), "PROTOBUF"))
    ids = ids_of(pair)
    ids.ask([KEY])
    assert payloads(copied(ids, batch((None, framed(id, b"\x02\x01\x0a\x01x"))))) == [
        (None, framed(1, b"\x02\x01\x0a\x01x"))
    ]


def test_a_schema_that_is_not_there_yet_is_waited_for(pair: Pair) -> None:
    first, second = pair.orders()
    pair.there.register("address", pair.here.history("address")[0].schema)
    pair.there.register("orders-value", pair.here.history("orders-value")[0].schema)
    pair.there.register("orders-key", Schema('"string"'))
    ids = ids_of(pair)
    ids.ask([KEY])
    known, unknown = batch((None, framed(first, b"1"))), batch((None, framed(second, b"2")), base=1)
    selected = copied(ids, known, unknown)
    assert isinstance(selected.refused, SchemaMissing)
    assert (selected.position, len(selected.batches)) == (1, 1), "what stands in front of it goes on"
    reason = f"schema id {second} of orders-value is not at the target yet"
    assert judge_refused_batch(selected.refused) == Reinspect(reason), "never loud, however often"
    assert ids.ask([KEY]) == {KEY: reason}
    asked = len(pair.source.asked)
    assert ids.ask([KEY._replace(partition=1)]) == {}
    assert len(pair.source.asked) == asked, "others of the topic do not wait, and nothing is asked for them"
    SchemaKind().carry(FLOW, pair.sides, SchemaKind().compare(FLOW, pair.sides))
    assert ids.ask([KEY]) == {}
    assert copied(ids, known, unknown).refused is None


def test_an_id_of_no_subject_that_travels_is_waited_for_by_name(pair: Pair) -> None:
    pair.orders()
    ids = ids_of(pair)
    ids.ask([KEY])
    assert isinstance(copied(ids, batch((None, framed(999, b"")))).refused, SchemaMissing)
    assert ids.ask([KEY]) == {
        KEY: "schema id 999, in a value of topic orders, is of no subject that this flow carries "
        "(orders-value, or one that sync.schemas.include names)"
    }


def test_other_naming_strategies_by_subjects_that_the_file_names(pair: Pair) -> None:
    by_record = flow("translate", names=NameFilter(include=(Selector("glob", "x.*"),)))
    id = pair.here.register("x.Order", Schema('"long"'))
    pair.there.register("others-value", Schema('"int"'))
    ids = ids_of(pair, by_record)
    SchemaKind().carry(by_record, pair.sides, SchemaKind().compare(by_record, pair.sides))
    ids.ask([KEY])
    assert payloads(copied(ids, batch((None, framed(id, b"v"))))) == [(None, framed(2, b"v"))]


def test_a_topic_without_subjects_travels_as_it_is_until_it_has_one(pair: Pair) -> None:
    key = KEY._replace(topic="orders-raw")
    ids = ids_of(pair)
    ids.ask([key])
    number = (7 << 32 | 5).to_bytes(8, "big")
    raw = batch((framed(3, b"key"), framed(3, b"value")), (None, number))
    assert payloads(copied(ids, raw, key=key)) == [(framed(3, b"key"), framed(3, b"value")), (None, number)]
    id = pair.here.register("orders-raw-value", Schema('"long"'))
    pair.there.register("orders-raw-value", Schema('"int"'))
    pair.there.register("orders-raw-value", Schema('"long"'))
    registered = batch((framed(3, b"key"), framed(id, b"value")))
    assert isinstance(copied(ids, registered, key=key).refused, SchemaMissing), "asked anew before anything passes"
    assert ids.ask([key]) == {}
    assert payloads(copied(ids, registered, key=key)) == [(framed(3, b"key"), framed(2, b"value"))]


def test_subjects_that_follow_their_topics(pair: Pair) -> None:
    renamed = flow("translate", prefix="a.", subjects="follow_topic")
    first, _ = pair.orders()
    pair.there.register("orders-value", Schema('"bytes"'))
    SchemaKind().carry(renamed, pair.sides, SchemaKind().compare(renamed, pair.sides))
    ids = ids_of(pair, renamed)
    ids.ask([KEY])
    wanted = pair.there.history("a.orders-value")[0].id
    assert payloads(copied(ids, batch((None, framed(first, b""))))) == [(None, framed(wanted, b""))]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.binary(max_size=9), st.sampled_from([framed(104, b"k")])),
            st.one_of(st.none(), st.sampled_from([framed(102, b"one"), framed(103, b"x" * 40)]), st.binary(max_size=4)),
        ),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from(["none", "gzip"]),
)
def test_two_workers_send_the_same_bytes_and_no_offset_moves(shared, records, codec) -> None:
    pair = shared
    stored_ = batch(*records, codec=codec)
    selected = [copied(each, stored_) for each in (_asked(pair), _asked(pair))]
    if isinstance(selected[0].refused, SchemaMissing):  # a key that looks like one
        assert isinstance(selected[1].refused, SchemaMissing)
        return
    assert [bytes(each.data) for each in selected[0].batches] == [bytes(each.data) for each in selected[1].batches]
    assert sum(each.records for each in selected[0].batches) == len(records)
    assert [each.spans for each in selected[0].batches] == [((0, len(records)),)]
    assert decode_batch_header(selected[0].batches[0].data).count == len(records)


@pytest.fixture(scope="module")
def shared() -> Iterator[Pair]:
    with two() as pair:
        pair.orders()
        SchemaKind().carry(FLOW, pair.sides, SchemaKind().compare(FLOW, pair.sides))
        yield pair


def _asked(pair: Pair) -> FlowSchemaIds:
    ids = ids_of(pair)
    ids.ask([KEY])
    return ids


def test_a_registry_that_does_not_answer_is_no_reason_to_guess(pair: Pair) -> None:
    pair.orders()
    gone = FlowSchemaIds(FLOW, pair.sides.source, cluster("b", "http://127.0.0.1:9"))
    with pytest.raises(Unreachable):
        gone.ask([KEY])
    assert isinstance(copied(gone, batch((None, framed(102, b"")))).refused, SchemaMissing)


def test_only_flows_that_translate_open_their_batches(pair: Pair) -> None:
    all_ = SchemaIdTranslations(pair.sides.target)
    assert all_.ask(flow("preserve"), pair.sides.source, [KEY]) == {}
    assert all_.changes(flow("preserve"), pair.sides.source, KEY, SchemaIdCounts()) is None
    assert all_.changes(FLOW, pair.sides.source, KEY, SchemaIdCounts()) is not None
    assert pair.source.asked == []


@pytest.mark.parametrize(("before", "after"), [("preserve", "translate"), ("translate", "preserve")])
def test_what_is_copied_keeps_the_ids_that_it_has(before: str, after: str) -> None:
    refuse_changed_schema_ids(flow(after), flow(before), lambda: False)
    with pytest.raises(CannotApply, match=rf"Restore `ids: {before}`, or give the flow a `suffix`"):
        refuse_changed_schema_ids(flow(after), flow(before), lambda: True)
    refuse_changed_schema_ids(flow(after), flow(after, subjects="follow_topic"), lambda: True)


def test_another_way_to_write_ids_is_another_copy() -> None:
    assert can_keep_copying(FLOW, flow("translate"))
    assert not can_keep_copying(FLOW, flow("preserve"))
    assert not can_keep_copying(flow("preserve"), FLOW)
    assert not can_keep_copying(FLOW, flow("translate", subjects="follow_topic"))
    assert can_keep_copying(flow("preserve"), flow("preserve", subjects="follow_topic"))
    once = replace(FLOW, sync=replace(FLOW.sync, schemas=replace(FLOW.sync.schemas, mode="once")))
    assert can_keep_copying(FLOW, once)
