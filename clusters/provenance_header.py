"""The header that says where a record came from (`provenance.header` of a flow): its name, and the text in it.

One header a hop, appended behind those that the record has. So the first one names the birth place, and the last one
the cluster from which the last flow read. The text is ASCII, its six parts stand apart by one blank:

    v1 CLUSTER_ID TOPIC PARTITION OFFSET TIMESTAMP

All are those of the record at the flow's source; the timestamp is in ms since 1970, -1 where the record has none. Topic
names and cluster ids hold no blanks. The format is public: other versions get another first word (decision 0136).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from watershed.topology.plan import PlanFlow

_VERSION: Final = "v1"
_PARTS: Final = 6


class RecordOrigin(NamedTuple):
    """Where a record stood. timestamp: ms since 1970, -1 without one."""

    cluster_id: str
    topic: str
    partition: int
    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class ProvenanceHeader:
    """What a flow writes into the records of one source partition. begin: records below this source offset have no
    such header, because another tool copied them."""

    name: str
    cluster_id: str
    topic: str
    partition: int
    begin: int = 0

    def encode_place(self) -> bytes:
        """The part of the text that all records of the partition have."""
        return f"{_VERSION} {self.cluster_id} {self.topic} {self.partition} ".encode()

    def encode_value(self, offset: int, timestamp: int) -> bytes:
        """The text for the record at this source offset. timestamp: ms since 1970."""
        return self.encode_place() + b"%d %d" % (offset, timestamp)


def build_provenance_header(
    flow: PlanFlow, source_id: str | None, topic: str, partition: int, begin: int = 0
) -> ProvenanceHeader | None:
    """What the flow writes into the records of a source partition; None where it writes no header. source_id: the
    source's cluster id; where nobody wrote it down, the alias stands for it."""
    if flow.header is None:
        return None
    return ProvenanceHeader(flow.header, source_id or flow.source, topic, partition, begin)


def decode_record_origin(value: bytes | None) -> RecordOrigin | None:
    """What a header's text says; None where it is not of this format."""
    try:
        parts = (value or b"").decode("ascii").split(" ")
        if len(parts) != _PARTS or parts[0] != _VERSION:
            return None
        return RecordOrigin(parts[1], parts[2], *map(int, parts[3:]))
    except ValueError:
        return None
