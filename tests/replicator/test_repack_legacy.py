"""Old message formats: what a consumer of the source reads is what stands in the repacked batches."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.replicator.build import NOW, answer, data
from tests.replicator.old_formats import LOG_APPEND_TIME, Old, message, packed, wrapper
from watershed.clusters.record_batch import BatchRecord, decode_batch_records
from watershed.replicator.batch.batch_selection import SelectedBatches, select_batches
from watershed.replicator.batch.record_batch import BatchChecksum


def seen(selected: SelectedBatches) -> list[BatchRecord]:
    """The records with their source offsets, as the target will hold them."""
    assert selected.refused is None, selected.refused
    found = []
    for batch in selected.batches:
        for at, record in enumerate(decode_batch_records(batch.data)):
            found.append(
                BatchRecord(batch.source_offset(at), record.timestamp, record.key, record.value, record.headers)
            )  # fmt: skip
    return found


def expected(*messages: Old) -> list[BatchRecord]:
    return [BatchRecord(each.offset, each.timestamp, each.key, each.value) for each in messages]


PLAIN = (Old(3, b"k", b"v"), Old(4, None, b""), Old(5, b"", None), Old(9, b"k" * 300, b"v" * 20_000))


def test_v0_without_timestamps() -> None:
    selected = select_batches(answer(*(message(0, each) for each in PLAIN)), 3)
    assert seen(selected) == expected(*PLAIN)
    assert selected.position == 10


def test_v1_with_timestamps_of_producer_or_broker() -> None:
    stamped = [Old(each.offset, each.key, each.value, NOW + each.offset * 7 - 100) for each in PLAIN]
    created = [message(1, each) for each in stamped]
    appended = [message(1, each, LOG_APPEND_TIME) for each in stamped]
    assert seen(select_batches(answer(*created), 0)) == expected(*stamped)
    assert seen(select_batches(answer(*appended), 0)) == expected(*stamped)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_v0_wrapper_with_absolute_offsets(codec: str) -> None:
    selected = select_batches(answer(wrapper(0, 9, PLAIN, codec)), 0)
    assert [(batch.codec, batch.end) for batch in unpacked_codec(selected)] == [({"gzip": 1}.get(codec, 0), 10)]
    assert seen(selected) == expected(*PLAIN)


def unpacked_codec(selected: SelectedBatches):
    """snappy and lz4 are read by the replicator's own code in the tests of codecs; here the raw records count."""
    from watershed.replicator.batch.records import build_raw_batch, decode_records

    assert selected.refused is None, selected.refused
    for at, batch in enumerate(selected.batches):
        if batch.codec > 1:
            selected.batches[at] = build_raw_batch(moved(decode_records(batch), batch), 0, batch.end)
    return selected.batches


def moved(records, batch):
    return [record._replace(offset=batch.source_offset(at)) for at, record in enumerate(records)]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_v1_wrapper_with_relative_offsets_and_holes(codec: str) -> None:
    inner = [Old(0, b"a", b"1", NOW), Old(1, b"b", None, NOW - 5), Old(4, b"c", b"3", NOW + 9)]
    selected = select_batches(answer(wrapper(1, 104, inner, codec, timestamp=NOW + 9)), 100)
    unpacked_codec(selected)
    assert seen(selected) == [
        BatchRecord(100, NOW, b"a", b"1"),
        BatchRecord(101, NOW - 5, b"b", None),
        BatchRecord(104, NOW + 9, b"c", b"3"),
    ]
    assert selected.batches[0].spans == ((100, 2), (104, 1))


def test_v1_wrapper_with_the_brokers_append_time() -> None:
    inner = [Old(0, b"a", b"1", NOW - 100), Old(1, b"b", b"2", NOW - 50)]
    selected = select_batches(answer(wrapper(1, 51, inner, "gzip", timestamp=NOW, append_time=True)), 0)
    assert [(record.offset, record.timestamp) for record in seen(selected)] == [(50, NOW), (51, NOW)]


def test_the_position_inside_a_wrapper() -> None:
    inner = [Old(at, b"k%d" % at, b"v", NOW) for at in range(5)]
    selected = select_batches(answer(wrapper(1, 24, inner, "gzip", timestamp=NOW)), 22)
    assert [record.offset for record in seen(selected)] == [22, 23, 24]
    behind = wrapper(1, 24, inner, "gzip", timestamp=NOW)
    assert select_batches(answer(behind), 25) == SelectedBatches(
        [], 25, -1, last_batch=BatchChecksum(24, behind[12:16], len(behind))
    )


def test_all_formats_in_one_log() -> None:
    selected = select_batches(
        answer(
            message(0, Old(0, b"zero", b"0")),
            wrapper(0, 2, [Old(1, b"a", b"1"), Old(2, b"b", b"2")], "gzip"),
            message(1, Old(3, b"one", b"3", NOW)),
            data(4, 2),
        ),
        0,
    )
    records = seen(selected)
    assert [record.offset for record in records] == [0, 1, 2, 3, 4, 5]
    assert [record.timestamp for record in records] == [-1, -1, -1, NOW, NOW, NOW + 1]
    assert selected.position == 6


@dataclass(frozen=True)
class Broken:
    name: str
    bytes_: bytes
    reason: str


CUT = message(0, PLAIN[0])[:-1]
BROKEN = [
    Broken("damaged", message(1, Old(7, b"k", b"v"))[:-1] + b"x", "is damaged"),
    Broken("nothing wrapped", wrapper(1, 7, [], "gzip"), "wraps no message"),
    Broken("other format inside", wrapper(1, 7, [Old(0, b"k", b"v")], "gzip", inner_magic=0), "format v0"),
    Broken("not gzip", message(1, Old(7, None, b"nonsense"), 1), "gzip data cannot be read"),
    Broken("no value", message(1, Old(7, None, None), 3), "lz4 data cannot be read"),
    Broken("no such codec", message(1, Old(7, None, b"x"), 7), "codec 7 does not exist"),
    Broken("wrapped twice", message(1, Old(7, None, packed(wrapper(1, 0, [], "gzip"), "gzip", 1)), 1), "contradict"),
    Broken("offsets that fall", wrapper(0, 7, [Old(6, b"", b""), Old(5, b"", b"")], "gzip"), "contradict"),
    Broken("offsets behind the wrapper's", wrapper(0, 7, [Old(9, b"", b"")], "gzip"), "contradict"),
    Broken(
        "cut off inside", message(0, Old(7, None, packed(message(0, PLAIN[0])[:-1], "gzip", 0)), 1), "where it ends"
    ),
]


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.name)
def test_what_cannot_be_read_stops_with_its_offset(case: Broken) -> None:
    selected = select_batches(answer(message(1, Old(6, b"k", b"v", NOW)), case.bytes_), 0)
    assert selected.refused is not None
    assert case.reason in str(selected.refused)
    assert "source offset 7" in str(selected.refused)
    assert (selected.refused.state, selected.position, len(selected.batches)) == ("rejected", 7, 1)
