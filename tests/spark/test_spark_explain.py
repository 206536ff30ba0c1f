"""What is shown of a difference, without a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.spark.logs import a_log
from watershed.cli.explain_chunk_text import encode_chunk_explanation, find_first_difference, render_chunk_explanation
from watershed.replicator.errors import ReplicatorError
from watershed.spark.errors import WrongUse
from watershed.spark.evidence.chunk_names import find_chunk_by_name
from watershed.spark.evidence.difference_explanation import (
    ChunkExplanation,
    OriginReader,
    SideReader,
    explain_differences,
)
from watershed.spark.evidence.parquet_tables import build_diff_rows
from watershed.spark.fingerprint import ConsumedRecord, RecordFingerprints, fingerprint_records
from watershed.spark.judging.proof_window import PartitionPair
from watershed.spark.judging.record_difference import compare_records
from watershed.spark.judging.verdict import ChunkRow, ConfirmedDifference, encode_chunk_row
from watershed.spark.reading.fetch_answers import OffsetsExpired
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.whole_records import WholeRecord

PLACE = PartitionPair("a-to-b", "orders", "b.orders", 3)


class Side:
    """A log from `first` on, of which what is below `start` expired."""

    def __init__(self, records: Sequence[ConsumedRecord], first: int = 0) -> None:
        self.records, self.first, self.start = list(records), first, 0

    @property
    def prints(self) -> RecordFingerprints:
        return fingerprint_records(self.records, self.first)

    @property
    def span(self) -> OffsetRange:
        return OffsetRange(self.first, self.first + len(self.records))

    def read(self, span: OffsetRange) -> RecordFingerprints:
        if span.start < self.start:
            raise OffsetsExpired(self.start)
        return self.prints.between(span.start, span.end)

    def whole(self, span: OffsetRange, offsets: Sequence[int]) -> Iterable[WholeRecord]:
        prints = self.read(span)
        for offset, fp, kh in zip(prints.offset.tolist(), prints.fp.tolist(), prints.kh.tolist(), strict=True):
            if offset in offsets:
                r = self.records[offset - self.first]
                headers = tuple((name.encode() if isinstance(name, str) else name, v) for name, v in r.headers)
                yield WholeRecord(offset, r.timestamp, r.key, r.value, headers, fp, kh)

    @property
    def reader(self) -> SideReader:
        return SideReader(self.read, self.whole)


def proven(here: Side, there: Side) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The rows that a proof of one chunk leaves."""
    row = ChunkRow(PLACE, here.span, there.span, *(_sums(side) for side in (here, there)), "different")
    confirmed = [ConfirmedDifference(PLACE, here.span, there.span, compare_records(here.prints, there.prints))]
    return {"run_id": "r", "chunk": f"orders-3@{here.first}", **encode_chunk_row(row)}, build_diff_rows(
        "r", confirmed, [row], 99
    )


def _sums(side: Side) -> Any:
    from watershed.spark.fingerprint import sum_fingerprints

    return sum_fingerprints(side.prints)


LOG = a_log(1, 90)


def damaged() -> tuple[Side, Side]:
    copy = list(LOG)
    copy[60] = replace(copy[60], value=b"another")
    copy[70:71] = []
    copy.insert(20, copy[19])
    return Side(LOG, 100), Side(copy, 7)


def test_every_difference_with_both_sides_and_neighbours() -> None:
    here, there = damaged()
    chunk, diffs = proven(here, there)
    found = explain_differences(chunk, diffs, here.reader, there.reader)
    assert (found.total, found.anew, found.equal_now, found.expired) == (3, False, False, (0, 0))
    told = {each.kind: each for each in found.explained}
    altered, missing, duplicate = told["altered"], told["missing"], told["duplicate"]
    assert (altered.offsets, altered.components) == ((160, 68), ("value",))
    assert (altered.records[0].value, altered.records[1].value) == (LOG[60].value, b"another")  # type: ignore[union-attr]
    assert altered.then == ("as it was", "as it was")
    assert [near.offset for near in altered.near[0]] == [158, 159, 161, 162]
    assert (missing.offsets, missing.then) == ((170, None), ("as it was", None))
    assert [near.value for near in missing.near[1]] == [LOG[at].value for at in (68, 69, 71, 72)]  # where it would be
    assert duplicate.offsets[0] is None
    assert [near.value for near in duplicate.near[0]][:2] == [LOG[at].value for at in (18, 19)]


def test_no_value_is_shown_unless_asked_for() -> None:
    here, there = damaged()
    chunk, diffs = proven(here, there)
    found = explain_differences(chunk, diffs, here.reader, there.reader)
    secret = [str(record.value, "utf-8") for record in LOG if record.value and len(record.value) > 3]
    for told in (
        render_chunk_explanation(chunk, found, reveal=False),
        json.dumps(encode_chunk_explanation(chunk, found, reveal=False)),
    ):
        assert not any(value in told for value in [*secret, "another"])
    shown = render_chunk_explanation(chunk, found, reveal=True)
    assert '"another"   ← differs from byte 0 on' in shown
    assert json.dumps(encode_chunk_explanation(chunk, found, reveal=True)).count("another") == 1


def test_of_a_flow_that_changes_records_the_source_is_shown_beside_what_was_expected() -> None:
    source = Side(LOG[:6], 100)
    expected = Side([replace(record, value=b"masked") for record in LOG[:6]], 100)
    copy = [*expected.records[:2], replace(expected.records[2], value=b"plain"), *expected.records[3:]]
    there = Side([*copy, replace(LOG[7], value=b"kept")], 0)
    chunk, diffs = proven(expected, there)
    chunk |= {"source_end": 108}
    source.records += LOG[6:8]
    origin = OriginReader(lambda offset: offset + 101 if offset == 6 else 1_000, source.whole)
    found = explain_differences(chunk, diffs, expected.reader, there.reader, origin=origin)
    told = {each.kind: each for each in found.explained}
    assert told["altered"].origin is not None
    assert (told["altered"].origin.offset, told["altered"].origin.value) == (102, LOG[2].value)
    assert told["altered"].records[0] is not None
    assert told["altered"].records[0].value == b"masked"
    assert told["foreign"].origin is not None
    assert told["foreign"].origin.value == LOG[7].value
    lines = render_chunk_explanation(chunk, found, reveal=False).splitlines()
    assert "  expected  no such record, `where` leaves it out" in lines
    assert sum(line.startswith("  source    1") for line in lines) == 2
    document = encode_chunk_explanation(chunk, found, reveal=False)
    assert set(document["differences"][0]) == {"kind", "components", "origin", "expected", "target"}


def test_a_record_that_no_source_offset_leads_to_has_no_origin() -> None:
    def find_offset(offset: int) -> int:
        raise ReplicatorError(f"target offset {offset} lies before the first copied record")

    here = Side(LOG[:3], 100)
    there = Side([*LOG[:3], LOG[8]], 0)
    chunk, diffs = proven(here, there)
    origin = OriginReader(find_offset, here.whole)
    found = explain_differences(chunk, diffs, here.reader, there.reader, origin=origin)
    assert [each.origin for each in found.explained] == [None]
    text = render_chunk_explanation(chunk, found, reveal=True)
    assert "  source    not known: it expired, or no record of the source leads there" in text
    assert "  expected  no such record\n" in text


def test_what_became_of_it_since_is_said() -> None:
    here, there = damaged()
    chunk, diffs = proven(here, there)
    there.records[61] = LOG[60]  # somebody repaired it
    here.start = 165  # and retention went on
    found = explain_differences(chunk, diffs, here.reader, there.reader)
    told = {each.kind: each for each in found.explained}
    assert told["altered"].then == ("expired since", "another record now")
    assert found.expired == (65, 0)
    text = render_chunk_explanation(chunk, found, reveal=False)
    assert "source offsets 100 to 164 expired since the proof" in text
    assert "source  160  expired since" in text
    here.start = 1000
    assert explain_differences(chunk, diffs, here.reader, there.reader).expired == (90, 0)


def test_what_was_repaired_is_said() -> None:
    here, there = damaged()
    chunk, diffs = proven(here, there)
    whole = Side(LOG, 7)
    found = explain_differences(chunk, diffs, here.reader, whole.reader)
    assert found.equal_now
    assert "both sides hold the same records here now" in render_chunk_explanation(chunk, found, reveal=False)


def test_a_chunk_whose_differences_were_not_named_is_compared_again() -> None:
    here, there = damaged()
    chunk, _ = proven(here, there)
    found = explain_differences(chunk, [], here.reader, there.reader)
    assert (found.anew, found.total) == (True, 3)
    assert "compared again just now" in render_chunk_explanation(chunk, found, reveal=False)


def test_no_more_than_some_at_once() -> None:
    here, there = Side(LOG), Side([replace(record, timestamp=record.timestamp + 1) for record in LOG])
    chunk, diffs = proven(here, there)
    found = explain_differences(chunk, diffs, here.reader, there.reader, limit=4)
    assert (len(found.explained), found.total) == (4, len(diffs))
    assert f"and {len(diffs) - 4} more" in render_chunk_explanation(chunk, found, reveal=False)


@pytest.mark.parametrize(
    ("one", "other", "at"),
    [
        (b"abc", b"abd", 2),
        (b"abc", b"ab", 2),
        (b"", b"a", 0),
        (b"abc", b"abc", None),
        (None, b"abc", None),
    ],
)
def test_the_first_byte_that_differs(one: bytes | None, other: bytes | None, at: int | None) -> None:
    assert find_first_difference(one, other) == at


def test_long_and_odd_values() -> None:
    def text(value: bytes | None, other: bytes | None) -> str:
        records = [WholeRecord(5, -1, None, each, ((b"h", None),), 1, 2) for each in (value, other)]
        from watershed.spark.evidence.difference_explanation import ExplainedDifference

        each = ExplainedDifference("altered", ("value",), (5, 5), tuple(records), ("as it was", "as it was"), ((), ()))  # type: ignore[arg-type]
        chunk, _ = proven(Side(LOG), Side(LOG))
        return render_chunk_explanation(chunk, ChunkExplanation((each,), 1, False, (0, 0), False), reveal=True)

    long = "ä" * 400
    shown = text(long.encode(), ("ä" * 300 + "b").encode())
    assert "← differs from byte 600 on" in shown
    assert '… "ää' in shown
    assert " 800 B in all" not in shown  # the rest from where it differs is not that long
    assert "0xff00" in text(b"\xff\x00", b"a")
    assert '"a\\n\\x1b"' not in text(b"a\n\x1b", b"b")  # no escape sequence reaches the terminal
    assert "\x1b[31m" not in text(b"\x1b[31m", b"b")
    assert "value  null" in text(None, b"b")
    assert "1969-12-31T23:59:59.999Z" in shown
    assert 'header "h": null' in shown


ROWS = [
    {"flow": flow, "topic": topic, "partition": 3, "chunk": f"{topic}-3@{at}", "status": status,
     "source_start": at, "source_end": at + 100}
    for flow, topic, at, status in (
        ("a-to-b", "orders", 0, "equal"),
        ("a-to-b", "orders", 100, "different"),
        ("a-to-b", "payments", 0, "equal"),
        ("c-to-b", "payments", 0, "different"),
    )
]  # fmt: skip


def test_a_chunk_by_its_name_or_by_an_offset_in_it() -> None:
    assert find_chunk_by_name(ROWS, "orders-3@100") is ROWS[1]
    assert find_chunk_by_name(ROWS, "orders-3@150") is ROWS[1]
    assert find_chunk_by_name(ROWS, "c-to-b/payments-3@0") is ROWS[3]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("payments-3@0", "is in more than one flow: say a-to-b/payments-3@0 or c-to-b/payments-3@0"),
        ("orders-3@900", "Of orders-3 it has the source offsets 0 to 199; those that differ: orders-3@100"),
        ("order-3@100", "Do you mean orders-3@100"),
        ("zebra", "Chunks that differ: orders-3@100, payments-3@0"),
        ("a-to-b/payments-3@500", "Of payments-3 it has the source offsets 0 to 99"),
    ],
)
def test_a_wrong_name_gets_a_suggestion(name: str, says: str) -> None:
    with pytest.raises(WrongUse, match=says):
        find_chunk_by_name(ROWS, name)
    with pytest.raises(WrongUse, match="It compared no chunks"):
        find_chunk_by_name([], name)
