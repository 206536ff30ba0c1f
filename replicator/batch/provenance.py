"""Writes `provenance.header` into records on their way: one header behind those that the record has.

A record that already tells, under the same name, that it stood in the flow's target topic, or in this very topic of the
source, has come round: a tool that nobody declared brought it back, or an application passed its headers on. To leave
it out could lose a record, to copy it could start a circle. So its partition halts, and a person decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from watershed.clusters.provenance_header import ProvenanceHeader, decode_record_origin
from watershed.clusters.varints import decode_zigzag, encode_zigzag
from watershed.replicator.batch.records import RawRecord, decode_record_fields
from watershed.replicator.errors import ReturnedRecord
from watershed.replicator.partition_states import OffsetSpan

RecordChange = Callable[[RawRecord], RawRecord]


@dataclass(slots=True)
class ProvenanceWriter:
    """header: what is written. returned: (cluster id, topic) that a record which has come round names; empty with
    `guard: none`. passed: source offsets that are copied all the same, by an operator decision."""

    header: ProvenanceHeader
    returned: frozenset[tuple[str, str]] = frozenset()
    passed: OffsetSpan | None = None
    _name: bytes = field(init=False)
    _sized_name: bytes = field(init=False)
    _place: bytes = field(init=False)

    def __post_init__(self) -> None:
        self._name, self._place = self.header.name.encode(), self.header.encode_place()
        self._sized_name = encode_zigzag(len(self._name)) + self._name

    def add_header(self, record: RawRecord) -> RawRecord:
        """The record with one header more. Raises ReturnedRecord; IndexError or ValueError for a record that cannot be
        read."""
        offset, timestamp, rest = record
        if self.returned and self._name in rest:
            self._refuse_returned(record)
        size, at = decode_zigzag(rest, 0)
        size, at = decode_zigzag(rest, at + size if size > 0 else at)
        at = at + size if size > 0 else at
        count, behind = decode_zigzag(rest, at)
        value = self._place + b"%d %d" % (offset, timestamp)
        pieces = (
            rest[:at],
            encode_zigzag(count + 1),
            rest[behind:],
            self._sized_name,
            encode_zigzag(len(value)),
            value,
        )
        return RawRecord(offset, timestamp, b"".join(pieces))

    def _refuse_returned(self, record: RawRecord) -> None:
        if self.passed is not None and self.passed.first <= record.offset < self.passed.end:
            return
        for header, value in decode_record_fields(record.rest).headers:
            origin = decode_record_origin(value) if header == self._name else None
            if origin is not None and (origin.cluster_id, origin.topic) in self.returned:
                raise ReturnedRecord(record.offset, self.header.name, (value or b"").decode())


def chain_changes(
    first: Callable[[], RecordChange] | None, second: RecordChange | None
) -> Callable[[], RecordChange] | None:
    """What `RepackTerms.change` takes: both changes one after the other, or the one that is there; None: neither."""
    if second is None:
        return first
    if first is None:
        return lambda: second

    def of_answer() -> RecordChange:
        before = first()
        return lambda record: second(before(record))

    return of_answer
