"""Which id at the target stands for an id in a record of the source, by topic and side.

A function of both registries: whoever asks gets the same answer, as long as nobody deletes versions for good. Ids are
those of the default context of either address; a payload begins with magic byte 0 and four bytes of id (Confluent's
wire format), and what follows (of Protobuf also the message's indexes) means the same under the new id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.registry_settings import resolve_registry_settings
from watershed.clusters.registry.subject_names import SUBJECT_SIDES, SubjectSide, build_subject, parse_subject
from watershed.clusters.registry.subject_selection import build_version_matcher, is_subject_of_topics, select_subjects
from watershed.clusters.registry.version_matching import VersionMatcher
from watershed.clusters.settings import ConnectionSettings
from watershed.topology.plan import PlanFlow

SCHEMA_ID_MAGIC: Final = 0
SCHEMA_ID_PREFIX_BYTES: Final = 5  # bytes: magic byte and id


@dataclass(frozen=True, slots=True)
class SideSchemaIds:
    """Of the keys, or of the values, of one topic. ids: source → target; waiting: source id → why there is none yet."""

    subject: str
    ids: Mapping[int, int] = field(default_factory=dict)
    waiting: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicSchemaIds:
    """None: the source has no subject for that side, so what is there stays as it is."""

    key: SideSchemaIds | None = None
    value: SideSchemaIds | None = None

    def side(self, side: SubjectSide) -> SideSchemaIds | None:
        """Returns the ids of keys or of values; None when that side is not translated."""
        return self.key if side == "key" else self.value


def read_schema_ids(
    flow: PlanFlow, source: ConnectionSettings, target: ConnectionSettings, topics: Iterable[str]
) -> dict[str, TopicSchemaIds]:
    """By topic of the source. Raises ClusterError: a registry does not answer, or none is declared."""
    here, there = resolve_registry_settings(source), resolve_registry_settings(target)
    with RegistryClient(here) as at_source, RegistryClient(there) as at_target:
        twins = build_version_matcher(flow, at_source, at_target)
        return {topic: build_topic_schema_ids(flow, topic, twins) for topic in topics}


def rewrite_schema_id(payload: bytes | None, side: SideSchemaIds | None) -> bytes | None:
    """A key or a value as the flow writes it; one whose id is not at the target yet, and one without id, as it is."""
    if payload is None or side is None or len(payload) < SCHEMA_ID_PREFIX_BYTES or payload[0] != SCHEMA_ID_MAGIC:
        return payload
    id = int.from_bytes(payload[1:SCHEMA_ID_PREFIX_BYTES], "big")
    return payload[:1] + side.ids.get(id, id).to_bytes(4, "big") + payload[SCHEMA_ID_PREFIX_BYTES:]


def build_topic_schema_ids(flow: PlanFlow, topic: str, twins: VersionMatcher) -> TopicSchemaIds:
    """As both registries know it now. Values may also be of subjects that the file names and that are called after no
    topic of the flow (RecordNameStrategy); keys are translated where the topic has a subject for keys only, because the
    bytes of a number look like an id. Raises what `RegistryClient` raises."""
    return TopicSchemaIds(*(_side_ids(flow, topic, side, twins) for side in SUBJECT_SIDES))


def _side_ids(flow: PlanFlow, topic: str, side: SubjectSide, twins: VersionMatcher) -> SideSchemaIds | None:
    own = build_subject(topic, side)
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
    return SideSchemaIds(own, ids, waiting)


def _free(flow: PlanFlow, twins: VersionMatcher) -> list[str]:
    if not flow.sync.schemas.names.include:
        return []
    named = select_subjects(flow, twins.source.subjects(deleted=True))
    return [each for each in named if not is_subject_of_topics(flow, each) and not parse_subject(each).context]
