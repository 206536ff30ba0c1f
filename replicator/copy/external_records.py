"""Records that another tool brought to a source topic, told apart as the file says (`external_flows`).

A tool marks each record that it writes with a header, or writes to topics whose names only it gives. A batch has one
producer, so either all of its records are marked or none is. An application that passes records on with their headers
(Kafka Streams does) can mix the two in one batch: nothing tells what is right there, and the partition halts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from watershed.replicator.batch.codecs import NONE
from watershed.replicator.batch.record_batch import CURRENT_MAGIC, MAGIC_BYTE_AT, RawBatch
from watershed.replicator.batch.records import decode_record_fields, decode_records
from watershed.replicator.errors import BadBatch, PartlyMarked

if TYPE_CHECKING:
    from watershed.topology.external_flows import ExternalFlow

_Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExternalRecords:
    """What one tool brought to one topic. path: ids of the clusters that these records were in, as far as the file
    tells. header: the name of the header that marks them; None: all records of the topic are the tool's."""

    path: _Path
    header: bytes | None = None

    def covers(self, batch: RawBatch) -> bool:
        """Whether the tool wrote the batch. Raises PartlyMarked, and BadBatch for one that cannot be opened."""
        if self.header is None:
            return True
        if batch.data[MAGIC_BYTE_AT] != CURRENT_MAGIC or (batch.codec == NONE and self.header not in bytes(batch.data)):
            return False  # older formats have no headers
        marked = [_has_header(rest, self.header, batch.base) for _, _, rest in decode_records(batch)]
        if any(marked) and not all(marked):
            raise PartlyMarked(batch.base, batch.end, self.header.decode(), sum(marked), len(marked))
        return any(marked)


def _has_header(rest: bytes, name: bytes, base: int) -> bool:
    """Raises BadBatch. Most records do not hold the name at all, and are not taken apart."""
    if name not in rest:
        return False
    try:
        return any(header == name for header, _ in decode_record_fields(rest).headers)
    except (ValueError, IndexError):
        raise BadBatch("holds a record whose headers are cut off", base) from None


def find_external_records(tools: tuple[tuple[ExternalFlow, _Path], ...], topic: str) -> tuple[ExternalRecords, ...]:
    """What tells the records of these tools apart in one topic of the flow's source. tools: with the path of what they
    bring. A tool whose records nothing tells apart is not among them."""
    found = []
    for tool, path in tools:
        if not tool.brings(topic):
            continue
        if tool.is_only_writer(topic):
            found.append(ExternalRecords(path))
        elif tool.marks_with is not None:
            found.append(ExternalRecords(path, tool.marks_with.encode()))
    return tuple(found)
