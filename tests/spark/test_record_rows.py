"""Records opened into rows and laid into batches again: numpy says what one record after the other says."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.examples import choose_examples
from watershed.clusters.registry.record_schemas import RecordSchemas, SideSchemas, UnknownSchema, WriterSchema
from watershed.clusters.varints import encode_zigzag
from watershed.replicator.batch.record_batch import RawBatch, decode_batch, decode_batches
from watershed.replicator.batch.records import RawRecord, build_raw_batch, decode_records
from watershed.spark.errors import SparkError
from watershed.spark.transform import record_arrays
from watershed.spark.transform.changed_rows import (
    ChangedRecords,
    ChangeOrder,
    DecisionReader,
    PackedRow,
    list_packed,
    pack_rows,
)
from watershed.spark.transform.field_plan import FieldPlan
from watershed.spark.transform.field_records import parse_unknown_schema, render_unknown_schema
from watershed.spark.transform.record_arrays import SPARE, BinaryColumn, RecordArrays, encode_batches, list_raw_records
from watershed.spark.transform.record_rows import RowBuilder, RowNeeds, SourcePart, open_parts
from watershed.spark.transform.shared_memory import MemoryFile, can_share_memory
from watershed.topology.egress_compression import EgressCompression
from watershed.topology.record_transform import RecordTransform, parse_changed_part

Content = list[tuple[list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]], int]]
BYTES = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.sampled_from(["a", "b", "origin"]), BYTES), max_size=3)
FIELDS = st.tuples(BYTES, BYTES, HEADERS, st.integers(-(1 << 30), 1 << 30))
BATCHES = st.lists(
    st.tuples(st.lists(FIELDS, min_size=1, max_size=60), st.sampled_from([0, 3, 4])), min_size=1, max_size=4
)


def sized(data: bytes | None) -> bytes:
    return b"\x01" if data is None else encode_zigzag(len(data)) + data


def encode(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    told = b"".join(sized(name.encode()) + sized(content) for name, content in headers)
    return sized(key) + sized(value) + encode_zigzag(len(headers)) + told


def build_batches(content: Content) -> list[RawBatch]:
    """Batches one behind the other, as a broker stores them."""
    found, offset = [], 100
    for records, codec in content:
        raw = [
            RawRecord(offset + at, 1_700_000_000_000 + time, encode(key, value, headers))
            for at, (key, value, headers, time) in enumerate(records)
        ]
        batch = build_raw_batch(raw, codec, offset + len(raw))
        found.append(decode_batch(batch.data, 0, len(batch.data)))
        offset += len(raw)
    return found


def list_arrays(arrays: RecordArrays) -> list[tuple[object, ...]]:
    columns = (arrays.key.to_pylist(), arrays.value.to_pylist(), arrays.headers.to_pylist())
    return list(zip(arrays.codec.tolist(), arrays.offset.tolist(), arrays.timestamp.tolist(), *columns, strict=True))


@settings(max_examples=choose_examples(60, 1_000), deadline=None)
@given(content=BATCHES)
def test_both_ways_of_opening_say_the_same_and_encode_the_same_bytes(content: Content) -> None:
    batches = build_batches(content)
    at_once = record_arrays._open_at_once(memoryview(b"".join((*(batch.data for batch in batches), SPARE))), batches)
    one_by_one = record_arrays._open_one_by_one(batches)
    assert at_once is not None
    assert list_arrays(at_once) == list_arrays(one_by_one)
    assert list_raw_records(at_once) == [record for batch in batches for record in decode_records(batch)]


@settings(max_examples=choose_examples(60, 1_000), deadline=None)
@given(content=BATCHES, first=st.integers(100, 130), size=st.integers(1, 200))
def test_records_that_were_found_once_need_not_be_looked_for_again(content: Content, first: int, size: int) -> None:
    stored = memoryview(b"".join((*(batch.data for batch in build_batches(content)), SPARE)))
    found = record_arrays.open_stored(stored).between(first, first + size)
    assume(len(found))
    assert found.is_of_one_piece
    again = record_arrays.restore_records(stored, memoryview(b"".join(found.render_places())))
    assert list_arrays(again) == list_arrays(found)


@settings(max_examples=choose_examples(60, 1_000), deadline=None)
@given(content=BATCHES, data=st.data())
def test_batches_of_columns_are_those_of_one_record_after_the_other(content: Content, data: st.DataObject) -> None:
    """Whatever the lengths are, and where bytes that were changed lie in other memory than those that were not."""
    opened = record_arrays._open_one_by_one(build_batches(content))
    records = opened.take(sorted(data.draw(st.sets(st.integers(0, len(opened) - 1), min_size=1))))
    if data.draw(st.booleans()):
        headers = BinaryColumn.of([b"\x02" + sized(b"origin") + sized(b"prod")]).select([0] * len(records))
        records = replace(records, headers=headers)
    turns = [at for at in range(1, len(records)) if records.codec[at] != records.codec[at - 1]]
    turns += data.draw(st.lists(st.integers(1, len(records)), max_size=3))
    edges = sorted({0, *turns, len(records)})
    raw = list_raw_records(records)
    for batch, (first, end) in zip(encode_batches(records, edges), pairwise(edges), strict=True):
        expected = build_raw_batch(raw[first:end], int(records.codec[first]), raw[end - 1].offset + 1)
        assert b"".join(batch.pieces) == bytes(expected.data)
        assert (batch.end, batch.spans) == (expected.end, expected.spans)


def test_columns_are_joined_row_by_row_whatever_they_hold() -> None:
    sizes = [0, 1, 11, 12, 13, 14, 4_096, None, 12, 13]
    columns = [
        BinaryColumn.of([None if size is None else bytes([65 + number]) * size for size in sizes])
        for number in range(3)
    ]
    body, ends = record_arrays.join_columns(columns)
    rows = [b"".join(letter * (size or 0) for letter in (b"A", b"B", b"C")) for size in sizes]
    assert bytes(body) == b"".join(rows)
    assert ends.tolist() == list(accumulate(map(len, rows)))
    assert columns[0].to_pylist() == [None if size is None else b"A" * size for size in sizes]
    assert BinaryColumn.of([]).to_pylist() == []
    part = BinaryColumn.of(pa.array([b"x" * 1_000, b"ab", None, b"c", b"y" * 1_000]).slice(1, 3))
    assert part.to_pylist() == [b"ab", None, b"c"]
    assert len(part.data) == len(b"abc") + len(SPARE)


def test_more_than_a_view_can_look_at_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_arrays, "_MOST_BYTES", 100)
    with pytest.raises(OverflowError, match="116 bytes of records in one part; at most 100 are opened"):
        BinaryColumn.of([b"x" * 100]).to_array()


PICKS: tuple[Callable[[ChangedRecords], RecordArrays], ...] = (lambda found: found.kept, lambda found: found.rejected)


def decide(
    part: SourcePart, keeps: Sequence[bool | None], order: ChangeOrder, texts: Sequence[bytes | None]
) -> list[PackedRow]:
    """What SQL would have said of each record, and what is packed from it, in Arrow batches of seven rows."""
    told = pa.RecordBatch.from_pydict({"part": [pickle.dumps(part)]})
    opened = pa.Table.from_batches(open_parts(NEEDS, [told]))
    n = opened.num_rows
    table = opened.select(["_part", "_source", "_left_out", "_problem", "offset"])
    table = table.append_column("_keep", pa.array(keeps[:n], pa.bool_()))
    for number in range(len(order.changes)):
        table = table.append_column(f"_change_{number}", pa.array(list(texts[:n]), pa.binary()))
    return list_packed(pa.Table.from_batches(pack_rows(order, table.combine_chunks().to_batches(max_chunksize=7))))


NEEDS = RowNeeds(key=False, value=False, key_text=False, value_text=False, headers=False)


@settings(max_examples=choose_examples(60, 1_000), deadline=None)
@given(content=BATCHES, data=st.data())
def test_what_is_kept_is_packed_with_its_source_offsets_and_the_rest_is_told(
    content: Content, data: st.DataObject
) -> None:
    batches = build_batches(content)
    records = [record for batch in batches for record in decode_records(batch)]
    keeps = data.draw(
        st.lists(st.sampled_from([True, True, True, False, None]), min_size=len(records), max_size=len(records))
    )
    first = records[0].offset + data.draw(st.integers(0, min(3, len(records) - 1)))
    part = SourcePart(5, "t", 0, first, batches[-1].end, b"".join(bytes(each.data) for each in batches), (), 200)
    kept_of = {
        record.offset: keep for record, keep in zip([r for r in records if r.offset >= first], keeps, strict=False)
    }
    order = ChangeOrder((parse_changed_part("headers.origin"),), ())
    rows = decide(part, keeps, order, [b"prod"] * len(records))
    packed: list[tuple[int, bytes]] = []
    assert rows.pop() == PackedRow(5, batches[-1].end)
    for row in rows:
        assert row.part == 5
        if row.reason is not None:
            assert kept_of.pop(row.offset) is None
            assert row.reason == "`where` gives null for it"
            continue
        numbers = row.spans
        assert numbers is not None
        [batch] = decode_batches(memoryview(row.data))
        sources = [begin + at for begin, count in zip(numbers[::2], numbers[1::2], strict=True) for at in range(count)]
        found = decode_records(batch._replace(base=0, end=1 << 40))
        packed += [(source, record.rest) for source, record in zip(sources, found, strict=True)]
    assert [source for source, _ in packed] == [offset for offset, keep in kept_of.items() if keep]
    plain = {record.offset: record.rest for record in records}
    for source, rest in packed:
        assert rest.endswith(sized(b"origin") + sized(b"prod"))
        assert rest.startswith(plain[source][:2])


def evaluate(opened: pa.RecordBatch) -> pa.RecordBatch:
    """What SQL makes of `value is not null`, and of a header that tells which of both are null."""
    keys, values = opened.column("_key").is_valid().to_pylist(), opened.column("_value").is_valid().to_pylist()
    told = [f"{key} {value}".encode() for key, value in zip(keys, values, strict=True)]
    decided = opened.select(["_part", "_source", "_left_out", "_problem", "offset"])
    return decided.append_column("_keep", pa.array(values)).append_column("_change_0", pa.array(told))


@pytest.mark.skipif(not can_share_memory(), reason="this system has no memory files")
@settings(max_examples=choose_examples(60, 1_000), deadline=None)
@given(content=BATCHES, data=st.data())
def test_one_row_for_all_records_alike_says_what_a_row_for_each_says(content: Content, data: st.DataObject) -> None:
    stored = b"".join(bytes(batch.data) for batch in build_batches(content))
    count = sum(len(records) for records, _ in content)
    leave_out = tuple(data.draw(st.sets(st.integers(100, 99 + count), max_size=3)))
    first = data.draw(st.integers(100, 99 + count))
    part = SourcePart(5, "t", 0, first, 100 + count, stored, leave_out, 200)
    needs = RowNeeds.of(RecordTransform(where="value is not null", changes=(("headers.x", "hex(key is null)"),)))
    assert needs.can_share_rows
    order, memory = ChangeOrder((parse_changed_part("headers.x"),), ()), MemoryFile()
    seen: list[list[list[tuple[object, ...]]]] = []
    for each in (part, part._replace(output=memory.path)):
        told = pa.RecordBatch.from_pydict({"part": [pickle.dumps(each)]})
        rows = [row for table in open_parts(needs, [told]) for row in pa.Table.from_batches([evaluate(table)])
                .to_batches(max_chunksize=data.draw(st.integers(1, 9)))]  # fmt: skip
        assert not each.output or sum(row.num_rows for row in rows) <= 8
        reader = DecisionReader(order)
        found = [found for row in rows for found in reader.read(row)]
        assert [each.is_last for each in found] == [False] * (len(found) - 1) + [True]
        kept, rejected = ([record for each in found for record in list_arrays(pick(each))] for pick in PICKS)
        assert len({reason for each in found for reason in each.reasons} - {""}) == 0
        seen.append([kept, rejected])
    memory.close()
    assert seen[0] == seen[1]
    assert len(seen[0][1]) == len([offset for offset in leave_out if offset >= first])


def test_rows_are_shared_only_where_expressions_look_at_nothing_else() -> None:
    for where in ("value is not null", "key is null or value is null", "partition = 3", "topic like 'a%'"):
        assert RowNeeds.of(RecordTransform(where=where)).can_share_rows, where
    for where in ("length(value) > 3", "value is null or key = 'a'", "offset > 7", "headers['a'] is null",
                  "timestamp > '2026-01-01'", "OFFSET % 2 = 0"):  # fmt: skip
        assert not RowNeeds.of(RecordTransform(where=where)).can_share_rows, where
    for form in ("string", "json"):
        assert not RowNeeds.of(RecordTransform(value_format=form, where="value is not null")).can_share_rows


def test_a_shared_row_that_is_not_of_its_record_is_refused() -> None:
    memory = MemoryFile()
    stored = bytes(build_batches([([(b"k", b"v", [], 0), (b"k", None, [], 0)] * 3, 0)])[0].data)
    needs = RowNeeds.of(RecordTransform(where="value is not null"))
    part = SourcePart(0, "t", 0, 0, 200, stored, (), 1_000, memory.path)
    [table] = RowBuilder(needs).build(part)
    assert table.column("offset").to_pylist() == [100, 101]
    swapped = table.set_column(table.schema.get_field_index("offset"), "offset", pa.array([101, 100]))
    with pytest.raises(SparkError, match="another order"):
        list(DecisionReader(ChangeOrder((), ())).read(swapped.append_column("_keep", pa.array([True] * 2))))
    reader = DecisionReader(ChangeOrder((), ()))
    decided = table.append_column("_keep", pa.array([True, False]))
    assert list(reader.read(decided.slice(0, 1))) == []  # a row lacks: nothing is said of the part
    [found] = reader.read(decided.slice(1, 1))
    assert found.kept.offset.tolist() == [100, 102, 104]
    memory.close()


def test_batches_are_compressed_as_the_flow_says_unless_they_have_a_codec() -> None:
    content: Content = [([(b"k", b"v" * 500, [], 1)] * 3, 0), ([(b"k", b"v" * 500, [], 1)] * 3, 4)]
    stored = b"".join(bytes(batch.data) for batch in build_batches(content))
    part = SourcePart(0, "t", 0, 0, 200, stored, (), 10_000, compression=EgressCompression("lz4", 1))
    rows = [row for row in decide(part, [True] * 6, ChangeOrder((), ()), []) if row.spans]
    found = [next(decode_batches(memoryview(row.data))) for row in rows]
    assert [batch.codec for batch in found] == [3, 4]
    assert [len(decode_records(batch)) for batch in found] == [3, 3]
    packed, plain = len(found[0].data), len(build_raw_batch(decode_records(found[0]), 0, 103).data)
    assert [row.saved for row in rows] == [plain - packed, 0]


def test_a_part_without_records_is_answered_all_the_same() -> None:
    """Halving a part may leave such a half where compaction made holes."""
    batches = build_batches([([(b"k", b"v", [], 0)] * 3, 0)])
    part = SourcePart(3, "t", 0, 500, 600, bytes(batches[0].data))
    [row] = decide(part, [None], ChangeOrder((), ()), [])
    assert row == PackedRow(3, 600)


def test_a_part_is_answered_only_where_all_its_rows_came() -> None:
    batches = build_batches([([(b"k", b"v", [], 0)] * 3, 0)])
    [table] = RowBuilder(NEEDS).build(SourcePart(0, "t", 0, 0, 200, bytes(batches[0].data), (), 1_000))
    decided = table.append_column("_keep", pa.array([True] * 3))
    found = [row for some in pack_rows(ChangeOrder((), ()), [decided.slice(0, 2)]) for row in some.to_pylist()]
    assert [row["spans"] for row in found] == [[100, 2]]


def test_rows_in_another_order_are_refused() -> None:
    batches = build_batches([([(b"k", b"v", [], 0)] * 3, 0)])
    part = SourcePart(0, "t", 0, 0, 200, bytes(batches[0].data))
    [table] = RowBuilder(NEEDS).build(part)
    swapped = table.set_column(table.schema.get_field_index("offset"), "offset", pa.array([101, 100, 102]))
    with pytest.raises(SparkError, match="another order"):
        list(DecisionReader(ChangeOrder((), ())).read(swapped.append_column("_keep", pa.array([True] * 3))))


def test_texts_that_are_no_utf8_are_the_problem_of_their_record() -> None:
    batches = build_batches([([(b"k", b"fine", [], 0), (b"k", b"\xff", [], 0), (b"k", None, [], 0)], 0)])
    part = SourcePart(0, "t", 0, 0, 200, bytes(batches[0].data))
    needs = RowNeeds.of(RecordTransform(value_format="string", where="value is null"))
    [table] = RowBuilder(needs).build(part)
    assert table.column("_value_text").to_pylist() == ["fine", None, None]
    assert table.column("_problem").to_pylist() == [None, "the value is no text in UTF-8 (byte 0)", None]


NUMBER = '{"type":"record","name":"N","fields":[{"name":"n","type":"int"},{"name":"note","type":["null","string"]}]}'
COLUMNS = pa.struct([("n", pa.int32())])


def frame(id: int, rest: bytes) -> bytes:
    return b"\0" + id.to_bytes(4, "big") + rest


def build_avro_part(values: Sequence[bytes | None], schemas: SideSchemas) -> SourcePart:
    batches = build_batches([([(b"k", value, [], 0) for value in values], 0)])
    return SourcePart(0, "t", 0, 0, 200, bytes(batches[0].data), schemas=RecordSchemas(value=schemas))


def test_records_are_opened_by_their_schemas_and_what_does_not_fit_is_told() -> None:
    writers = {
        7: WriterSchema(7, "AVRO", NUMBER),
        8: WriterSchema(8, "AVRO", '"int"'),
        9: WriterSchema(9, "JSON", "{}"),
    }
    values = [
        frame(7, b"\x0a\0"), None, frame(8, b"\x0a"), frame(9, b""), frame(6, b""), frame(5, b""), b"\x01abcdef",
        b"\0\0", frame(7, b"\x0a"), frame(7, b"\x0a\0\0"),
    ]  # fmt: skip
    needs = RowNeeds(False, False, False, False, False, fields=(FieldPlan("value", "avro", COLUMNS),))
    part = build_avro_part(values, SideSchemas(writers, {6: "schema id 6 is nowhere"}))
    [table] = RowBuilder(needs).build(part)
    assert table.column("_value_fields").to_pylist() == [{"n": 5}, None, *[None] * 8]
    assert table.column("_problem").to_pylist() == [
        None,
        None,
        "the value does not fit: schema id 8: is int, and a record is needed",
        "the value does not fit: schema id 9 is of type JSON, and `transform.format.value` is avro",
        "the value does not fit: schema id 6 is nowhere",
        render_unknown_schema(UnknownSchema("value", 5)),
        "the value does not fit: it begins with byte 1, where magic byte 0 and a schema id belong",
        "the value does not fit: it has 2 bytes, too few for a magic byte and a schema id",
        "the value does not fit: it ends in the middle of a field",
        "the value does not fit: there are 1 bytes behind the record",
    ]
    assert parse_unknown_schema(render_unknown_schema(UnknownSchema("key", 12))) == UnknownSchema("key", 12)
    assert parse_unknown_schema("the value does not fit") is None


def test_fields_are_changed_and_the_target_gets_its_own_ids() -> None:
    plan = FieldPlan("value", "avro", COLUMNS, (("n",),), (("note",),))
    order = ChangeOrder((parse_changed_part("value.n"),), (parse_changed_part("value.note"),), (plan,))
    schemas = SideSchemas({7: WriterSchema(7, "AVRO", NUMBER)}, {}, {7: 1_000})
    part = build_avro_part([frame(7, b"\x0a\x02\x02x"), None, frame(7, b"\x0a\0")], schemas)
    [table] = RowBuilder(RowNeeds(False, False, False, False, False, fields=(plan,))).build(part)
    assert table.column("_problem").null_count == 3
    decided = table.select(["_part", "_source", "_left_out", "_problem", "offset"])
    decided = decided.append_column("_keep", pa.array([True] * 3)).append_column(
        "_change_0", pa.array([6, 7, None], pa.int32())
    )
    [found] = DecisionReader(order).read(decided)
    assert found.kept.value.to_pylist() == [frame(1_000, b"\x0c\0"), None]
    assert found.rejected.value.to_pylist() == [frame(7, b"\x0a\0")]
    assert found.reasons == ["the value cannot be changed: `n` cannot be null in it"]


def read_changed(order: ChangeOrder, part: SourcePart, *changes: pa.Array) -> ChangedRecords:
    """What becomes of the records of a part that all travel."""
    [table] = RowBuilder(NEEDS).build(part)
    decided = table.select(["_part", "_source", "_left_out", "_problem", "offset"])
    decided = decided.append_column("_keep", pa.array([True] * table.num_rows))
    for number, column in enumerate(changes):
        decided = decided.append_column(f"_change_{number}", column)
    [found] = DecisionReader(order).read(decided)
    return found


def test_keys_are_changed_beside_values() -> None:
    batches = build_batches([([(key, value, [], 0) for key, value in ((b"a", b"1"), (None, b"2"), (b"c", None))], 0)])
    part = SourcePart(0, "t", 0, 0, 200, bytes(batches[0].data))
    order = ChangeOrder((parse_changed_part("key"), parse_changed_part("value")), ())
    found = read_changed(order, part, pa.array([b"x", b"y", None]), pa.array([None, b"2", b"3"], pa.binary()))
    assert found.kept.key.to_pylist() == [b"x", b"y", None]
    assert found.kept.value.to_pylist() == [None, b"2", b"3"]
    assert found.reasons == []


def test_members_of_keys_are_changed_and_a_key_that_has_none_is_told() -> None:
    keys = (b'{"id": 1, "mail": "a"}', None, b"[1]", b'{ "mail":"b"}')
    batches = build_batches([([(key, b'{"mail": "v"}', [], 0) for key in keys], 0)])
    part = SourcePart(0, "t", 0, 0, 200, bytes(batches[0].data))
    order = ChangeOrder((parse_changed_part("key.id"),), (parse_changed_part("key.mail"),))
    found = read_changed(order, part, pa.array([b"7", b"8", b"9", b"10"]))
    assert found.kept.key.to_pylist() == [b'{"id": 7}', None, b'{"id":10}']
    assert found.kept.value.to_pylist() == [b'{"mail": "v"}'] * 3
    assert found.rejected.key.to_pylist() == [b"[1]"]
    assert found.reasons == ["the key cannot be changed: it is no JSON object"]


def test_fields_of_keys_are_changed_by_their_schemas() -> None:
    plan = FieldPlan("key", "avro", COLUMNS, (("n",),), (("note",),))
    order = ChangeOrder((parse_changed_part("key.n"),), (parse_changed_part("key.note"),), (plan,))
    schemas = RecordSchemas(key=SideSchemas({7: WriterSchema(7, "AVRO", NUMBER)}, {}, {7: 1_000}))
    batches = build_batches([([(frame(7, b"\x0a\x02\x02x"), b"v", [], 0), (None, b"w", [], 0)], 0)])
    part = SourcePart(0, "t", 0, 0, 200, bytes(batches[0].data), schemas=schemas)
    found = read_changed(order, part, pa.array([6, 7], pa.int32()))
    assert found.kept.key.to_pylist() == [frame(1_000, b"\x0c\0"), None]
    assert found.kept.value.to_pylist() == [b"v", b"w"]


def test_an_id_without_a_counterpart_is_told_also_where_nobody_opens_the_record() -> None:
    part = build_avro_part([frame(7, b""), frame(8, b""), b"plain"], SideSchemas({}, {}, {7: 1}))
    [table] = RowBuilder(NEEDS).build(part)
    assert table.column("_problem").to_pylist() == [None, render_unknown_schema(UnknownSchema("value", 8)), None]
