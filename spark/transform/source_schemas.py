"""Schemas of the source's records, as a proof asks for them: all versions of the topics' subjects, and others by id.

Nothing of it comes from the worker that a proof judges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.record_schemas import (
    RecordSchemas,
    SideSchemas,
    UnknownSchema,
    WriterSchema,
    list_subject_ids,
    read_writer_schema,
)
from watershed.clusters.registry.registry_settings import resolve_registry_settings
from watershed.clusters.registry.subject_names import SUBJECT_SIDES, SubjectSide
from watershed.clusters.settings import resolve_connection_settings
from watershed.topology.plan import Plan
from watershed.topology.record_transform import RecordTransform

TopicPlace = tuple[str, str]  # alias of the cluster, topic


@dataclass(slots=True)
class SourceSchemas:
    """Of the topics of one job. Methods that ask raise ClusterError."""

    plan: Plan
    transform: RecordTransform
    _writers: dict[tuple[TopicPlace, SubjectSide], dict[int, WriterSchema]] = field(default_factory=dict)
    _absent: dict[tuple[TopicPlace, SubjectSide], dict[int, str]] = field(default_factory=dict)

    def read(self, places: Iterable[TopicPlace]) -> None:
        """Ask for all versions of the subjects that are called after these topics."""
        for place in places if self.transform.registry_sides else ():
            with self._open(place) as registry:
                for side in SUBJECT_SIDES:
                    if side in self.transform.registry_sides:
                        self._learn(registry, place, side, list_subject_ids(registry, place[1], side))

    def learn(self, place: TopicPlace, unknown: Iterable[UnknownSchema]) -> None:
        """Ask for ids that stand in records and are of no such version."""
        with self._open(place) as registry:
            for each in unknown:
                self._learn(registry, place, each.side, [each.id])

    def list_known(self, places: Iterable[TopicPlace]) -> Mapping[TopicPlace, RecordSchemas]:
        """As tasks get them."""
        return {
            place: RecordSchemas(
                *(
                    SideSchemas(self._writers.get((place, side), {}), self._absent.get((place, side), {}))
                    for side in SUBJECT_SIDES
                )
            )
            for place in places
        }

    def _learn(self, registry: RegistryClient, place: TopicPlace, side: SubjectSide, ids: Iterable[int]) -> None:
        for id in ids:
            found = read_writer_schema(registry, id)
            if isinstance(found, str):
                self._absent.setdefault((place, side), {})[id] = found
            else:
                self._writers.setdefault((place, side), {})[id] = found

    @contextmanager
    def _open(self, place: TopicPlace) -> Iterator[RegistryClient]:
        settings = resolve_connection_settings(self.plan.cluster(place[0]))
        with RegistryClient(resolve_registry_settings(settings)) as registry:
            yield registry
