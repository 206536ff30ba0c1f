"""Which subjects a flow carries, and what they are called at the target."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.subject_names import parse_subject
from watershed.clusters.registry.version_matching import ReadableRegistry, VersionMatcher
from watershed.topology.plan import PlanFlow


def select_subjects(flow: PlanFlow, subjects: Iterable[str]) -> list[str]:
    """Those named in the file; where it names none, those that are called after a topic that travels."""
    names = flow.sync.schemas.names
    return [each for each in subjects if names.selects(each) and (names.include or is_subject_of_topics(flow, each))]


def is_subject_of_topics(flow: PlanFlow, subject: str) -> bool:
    """Whether it is called after a topic of the flow (TopicNameStrategy)."""
    topic = parse_subject(subject).topic
    return topic is not None and flow.selects(topic)


def build_target_subject(flow: PlanFlow, subject: str) -> str:
    """`follow_topic` renames what is called after a topic of the flow; everything else keeps its name."""
    found = parse_subject(subject)
    if flow.sync.schemas.subjects == "keep" or found.topic is None or not flow.selects(found.topic):
        return subject
    return found.renamed(flow.target_topic(found.topic))


def can_create_subject(flow: PlanFlow, subject: str) -> bool:
    """Whether some subject of the flow's source would get this name at the target."""
    found = parse_subject(subject)
    origin = flow.source_topic(found.topic) if found.topic is not None else None
    before = {subject} if origin is None else {subject, found.renamed(origin)}
    return any(build_target_subject(flow, each) == subject for each in select_subjects(flow, before))


def build_version_matcher(flow: PlanFlow, source: ReadableRegistry, target: RegistryClient) -> VersionMatcher:
    """Matches versions of both registries under the names that the flow gives its subjects."""
    return VersionMatcher(source, target, partial(build_target_subject, flow))
