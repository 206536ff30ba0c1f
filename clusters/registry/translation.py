"""Which id at the target stands for an id in a record of the source, by topic and side.

A function of both registries: whoever asks gets the same answer, as long as nobody deletes versions for good. Ids are
those of the default context of either address; a payload begins with magic byte 0 and four bytes of id (Confluent's
wire format), and what follows (of Protobuf also the message's indexes) means the same under the new id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from clusters.registry.client import RegistryClient
from clusters.registry.selection import of_topic, selected, twins_of
from clusters.registry.settings import registry_settings
from clusters.registry.subjects import SIDES, Side, parsed, subject_of
from clusters.registry.twins import Twins
from clusters.settings import ConnectionSettings
from topology.plan import PlanFlow

MAGIC: Final = 0
FRONT: Final = 5  # bytes: magic byte and id


@dataclass(frozen=True, slots=True)
class SideIds:
    """Of the keys, or of the values, of one topic. ids: source → target; waiting: source id → why there is none yet."""

    subject: str
    ids: Mapping[int, int] = field(default_factory=dict)
    waiting: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicIds:
    """None: the source has no subject for that side, so what is there stays as it is."""

    key: SideIds | None = None
    value: SideIds | None = None

    def side(self, side: Side) -> SideIds | None:
        return self.key if side == "key" else self.value


def ask_topic_ids(
    flow: PlanFlow, source: ConnectionSettings, target: ConnectionSettings, topics: Iterable[str]
) -> dict[str, TopicIds]:
    """By topic of the source. Raises ClusterError: a registry does not answer, or none is declared."""
    here, there = registry_settings(source), registry_settings(target)
    with RegistryClient(here) as at_source, RegistryClient(there) as at_target:
        twins = twins_of(flow, at_source, at_target)
        return {topic: topic_ids(flow, topic, twins) for topic in topics}


def rewritten(payload: bytes | None, side: SideIds | None) -> bytes | None:
    """A key or a value as the flow writes it; one whose id is not at the target yet, and one without id, as it is."""
    if payload is None or side is None or len(payload) < FRONT or payload[0] != MAGIC:
        return payload
    id = int.from_bytes(payload[1:FRONT], "big")
    return payload[:1] + side.ids.get(id, id).to_bytes(4, "big") + payload[FRONT:]


def topic_ids(flow: PlanFlow, topic: str, twins: Twins) -> TopicIds:
    """As both registries know it now. Values may also be of subjects that the file names and that are called after no
    topic of the flow (RecordNameStrategy); keys are translated where the topic has a subject for keys only, because the
    bytes of a number look like an id. Raises what `RegistryClient` raises."""
    return TopicIds(*(_side_ids(flow, topic, side, twins) for side in SIDES))


def _side_ids(flow: PlanFlow, topic: str, side: Side, twins: Twins) -> SideIds | None:
    own = subject_of(topic, side)
    subjects = [own, *(_free(flow, twins) if side == "value" else ())]
    subjects = [each for each in subjects if twins.history(each)]
    if not subjects:
        return None
    ids: dict[int, int] = {}
    waiting: dict[int, str] = {}
    for subject in subjects:
        for version in twins.history(subject):
            if version.id in ids:
                continue
            twin = twins.twin(version)
            if twin is not None:
                ids[version.id] = twin.id
                waiting.pop(version.id, None)
            else:
                waiting[version.id] = (
                    f"schema id {version.id} of {subject} is softly deleted at the source, so it is not carried to the "
                    "target: register that schema at the source again"
                    if version.deleted
                    else f"schema id {version.id} of {subject} is not at the target yet"
                )
    return SideIds(own, ids, waiting)


def _free(flow: PlanFlow, twins: Twins) -> list[str]:
    if not flow.sync.schemas.names.include:
        return []
    named = selected(flow, twins.source.subjects(deleted=True))
    return [each for each in named if not of_topic(flow, each) and not parsed(each).context]
