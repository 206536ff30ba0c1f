"""`provenance.header`: one header more behind those of each record; what has come round stops its partition."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replicator.build import NOW, batch_of
from watershed.clusters.provenance_header import ProvenanceHeader
from watershed.clusters.record_batch import BatchRecord, assign_batch_offset, build_batch
from watershed.replicator.apply_refusals import CannotApply, refuse_changed_header
from watershed.replicator.batch.batch_selection import select_batches
from watershed.replicator.batch.provenance import ProvenanceWriter, chain_changes
from watershed.replicator.batch.records import RawRecord, decode_record_fields, decode_records
from watershed.replicator.batch.repack import RepackTerms
from watershed.replicator.copy.rejected_records import judge_refused_batch
from watershed.replicator.errors import ReturnedRecord
from watershed.replicator.limits import TargetLimits
from watershed.replicator.partition_states import Halt, OffsetSpan
from watershed.topology.plan import PlanFlow
from watershed.topology.repeat_obstacles import explain_repeat_obstacle
from watershed.topology.selectors import TopicSelection

HEADER = ProvenanceHeader("from", "here", "orders", 3)
FLOW = PlanFlow("f", "onprem", "cloud", TopicSelection(()))
RETURNED = frozenset({("here", "orders"), ("there", "copies")})
headers = st.lists(st.tuples(st.sampled_from(["a", "from", ""]), st.none() | st.binary(max_size=5)), max_size=130)


def stored(records: list[BatchRecord], base: int = 10, codec: str = "none") -> memoryview:
    return memoryview(assign_batch_offset(build_batch(records, codec=codec), base, 0))


def terms(writer: ProvenanceWriter, **more) -> RepackTerms:
    return RepackTerms(change=chain_changes(None, writer.add_header), **more)


@given(st.lists(st.tuples(st.none() | st.binary(), st.none() | st.binary(), headers), min_size=1, max_size=9))
def test_only_one_header_is_added_behind_all_others(records) -> None:
    batch = [BatchRecord(at, NOW + at, key, value, tuple(each)) for at, (key, value, each) in enumerate(records)]
    selected = select_batches(stored(batch, codec="gzip"), 10, terms=terms(ProvenanceWriter(HEADER)))
    assert selected.refused is None
    found = [record for each in selected.batches for record in decode_records(each)]
    for at, (record, (key, value, before)) in enumerate(zip(found, records, strict=True)):
        fields = decode_record_fields(record.rest)
        encoded = [(name.encode(), content) for name, content in before]
        assert (fields.key, fields.value, record.timestamp) == (key, value, NOW + at)
        assert list(fields.headers) == [*encoded, (b"from", b"v1 here orders 3 %d %d" % (10 + at, NOW + at))]


@pytest.mark.parametrize("origin", [b"v1 here orders 0 7 1", b"v1 there copies 1 7 1"])
def test_a_record_that_has_come_round_stops_its_whole_batch(origin: bytes) -> None:
    records = [BatchRecord(0, NOW, b"k", b"v"), BatchRecord(1, NOW, b"k", b"v", (("from", origin),))]
    refused = select_batches(stored(records), 10, terms=terms(ProvenanceWriter(HEADER, RETURNED))).refused
    assert isinstance(refused, ReturnedRecord)
    halt = judge_refused_batch(refused)
    assert isinstance(halt, Halt)
    assert (halt.state, halt.source) == ("source_foreign_write", OffsetSpan(10, 12))
    assert origin.decode() in halt.error
    for allowed in (ProvenanceWriter(HEADER), ProvenanceWriter(HEADER, RETURNED, OffsetSpan(10, 12))):
        assert select_batches(stored(records), 10, terms=terms(allowed)).refused is None


@pytest.mark.parametrize("text", [b"v1 here other 0 7 1", b"v1 there orders 1 7 1", b"nothing of ours", None])
def test_other_places_and_other_texts_travel_on(text: bytes | None) -> None:
    records = [BatchRecord(0, NOW, b"from", b"from", (("from", text), ("to", b"v1 here orders 0 7 1")))]
    assert select_batches(stored(records), 10, terms=terms(ProvenanceWriter(HEADER, RETURNED))).refused is None


def test_a_batch_that_grows_beyond_the_target_is_cut_and_a_record_alone_is_refused() -> None:
    records = [BatchRecord(at, NOW, b"k", b"v" * 100) for at in range(9)]
    limit = len(stored(records))
    cut = select_batches(stored(records), 10, terms=terms(ProvenanceWriter(HEADER), limits=TargetLimits(limit)))
    assert cut.refused is None
    assert len(cut.batches) > 1
    assert all(len(each.data) <= limit for each in cut.batches)
    one = stored(records[:1])
    alone = select_batches(one, 10, terms=terms(ProvenanceWriter(HEADER), limits=TargetLimits(len(one))))
    assert "and the target takes" in str(alone.refused)


def test_both_changes_one_after_the_other() -> None:
    def shout(record: RawRecord) -> RawRecord:
        return record._replace(rest=record.rest.upper())

    change = chain_changes(lambda: shout, ProvenanceWriter(HEADER).add_header)
    assert change is not None
    [record] = decode_records(batch_of(bytes(stored([BatchRecord(0, NOW, b"k", b"v")]))))
    fields = decode_record_fields(change()(record).rest)
    assert (fields.value, fields.headers[0][1]) == (b"V", b"v1 here orders 3 10 %d" % NOW)
    assert chain_changes(None, None) is None


def test_the_header_does_not_change_in_mid_copy() -> None:
    with_header = replace(FLOW, header="from")
    refuse_changed_header(with_header, FLOW, lambda: False)
    refuse_changed_header(with_header, with_header, lambda: True)
    with pytest.raises(CannotApply, match=r"without `provenance.header`.* Take it out again, or give the flow a `suff"):
        refuse_changed_header(with_header, FLOW, lambda: True)
    with pytest.raises(CannotApply, match="Restore `header: from`"):
        refuse_changed_header(replace(FLOW, header="other"), with_header, lambda: True)


def test_no_copy_with_repeats() -> None:
    assert "`provenance.header` cannot hold" in explain_repeat_obstacle(replace(FLOW, header="from"))
