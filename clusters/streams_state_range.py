"""Where the state of a Kafka Streams application stands, beside the positions that a flow committed for it.

Key `group|state|<flow>|<group>` in `watershed.flows` of the target cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from watershed.clusters.control_record_codec import ControlRecordBody, ControlRecordFormat
from watershed.clusters.control_topics import FLOWS_TOPIC
from watershed.clusters.flow_records import GROUP_PREFIX
from watershed.clusters.topic_partition import TopicPartition

STATE_RANGE_PREFIX: Final = f"{GROUP_PREFIX}state|"


@dataclass(frozen=True, slots=True)
class StateRange(ControlRecordBody):
    """The state that belongs to the positions of a Streams application which the flow committed last at the target.

    least, most: by partition of its internal topics at the source, log ends around the moment when the positions were
    read there. Every record below `least` belongs to the positions, no record from `most` on does; a log that held
    nothing has no `most`. texts: by target partition, what the application kept beside the position, which our mark
    replaces. at_ms: of that reading, since
    1970. It is written behind the commit: after a crash in between the older record stands, whose range begins lower,
    so what is said to be beyond the positions is never too little.
    """

    FORMAT: ClassVar[ControlRecordFormat] = ControlRecordFormat("the state range of an application", FLOWS_TOPIC)
    flow: str
    group: str
    least: Mapping[TopicPartition, int] = field(default_factory=dict)
    most: Mapping[TopicPartition, int] = field(default_factory=dict)
    texts: Mapping[TopicPartition, str] = field(default_factory=dict)
    at_ms: int = 0

    @property
    def key(self) -> str:
        """Key of the record in watershed.flows."""
        return f"{STATE_RANGE_PREFIX}{self.flow}|{self.group}"

    def count_beyond(self, copied: Mapping[TopicPartition, int]) -> int:
        """How many offsets of the copies may hold state that the positions do not cover. copied: source partition →
        the source offset through which it is copied."""
        return sum(max(0, copied.get(place, at) - at) for place, at in self.least.items())

    def list_behind(self, copied: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Partitions whose copies lack state that belongs to the positions. copied: as above; a partition that is not
        in it has no copy."""
        return sorted(place for place, at in self.most.items() if copied.get(place, 0) < at)
