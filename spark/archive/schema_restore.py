"""Archived schemas to the registry of a restore's target, with the ids that the records name.

It is done as a flow with `sync.schemas: {ids: preserve}` does it (`replicator.sync.schemas`); the archive stands in for
the source's registry. Subjects keep their names, also where topics get others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.registry_settings import RegistrySettings
from watershed.clusters.registry.schema import Schema, SchemaReference, SchemaVersion
from watershed.clusters.registry.subject_selection import build_version_matcher, select_subjects
from watershed.clusters.registry.version_matching import VersionMatcher
from watershed.replicator.sync.schemas import carry_schemas, compare_schemas
from watershed.spark.archive.manifest import ArchivedSchema, ArchiveManifest
from watershed.topology.drift import FieldDrift
from watershed.topology.plan import PlanFlow
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.sync_settings import SchemaSync, SyncSettings

_OTHERWISE: Final = "give the cluster a registry that can keep the archive's ids, and run it again"


@dataclass(frozen=True, slots=True)
class SchemaOutcome:
    """What became of archived schemas. registered, there: versions of subjects. left: what could not be brought, each
    with the reason."""

    registered: int = 0
    there: int = 0
    left: tuple[str, ...] = ()


class ArchivedRegistry:
    """What an archive holds of a registry, to be read like one. Levels of compatibility and modes are not archived."""

    def __init__(self, schemas: Iterable[ArchivedSchema]) -> None:
        self._versions: dict[str, list[SchemaVersion]] = defaultdict(list)
        for each in sorted(schemas, key=lambda schema: (schema.subject, schema.version)):
            schema = Schema(each.text, each.type, tuple(SchemaReference(*other) for other in each.references))
            self._versions[each.subject].append(SchemaVersion(each.subject, each.version, each.id, schema))

    def subjects(self, *, deleted: bool = False) -> list[str]:
        """Sorted."""
        return sorted(self._versions)

    def history(self, subject: str) -> list[SchemaVersion]:
        """All archived versions in order."""
        return list(self._versions.get(subject, ()))

    def compatibility(self, subject: str | None = None, *, effective: bool = False) -> str | None:
        """Not archived."""
        return None

    def mode(self, subject: str | None = None, *, effective: bool = False) -> str | None:
        """Not archived."""
        return None


def select_archived_schemas(manifest: ArchiveManifest, topics: Sequence[str]) -> list[ArchivedSchema]:
    """The versions of subjects that are called after these topics, and what they refer to."""
    registry = ArchivedRegistry(manifest.schemas)
    flow = _build_flow(manifest.cluster, "", topics)
    wanted = select_subjects(flow, registry.subjects())
    found: set[str] = set()
    while wanted:
        subject = wanted.pop()
        if subject not in found:
            found.add(subject)
            wanted += [other.subject for each in registry.history(subject) for other in each.schema.references]
    return [each for each in manifest.schemas if each.subject in found]


def explain_schemas_without_registry(manifest: ArchiveManifest, topics: Sequence[str], alias: str) -> SchemaOutcome:
    """What is left where the file declares no registry for the target; nothing without archived schemas."""
    schemas = select_archived_schemas(manifest, topics)
    if not schemas:
        return SchemaOutcome()
    subjects = ", ".join(dict.fromkeys(each.subject for each in schemas))
    return SchemaOutcome(
        left=(
            f"{subjects}: the file declares no schema registry for cluster {alias} (clusters.{alias}.schema_registry); "
            "give it one and run it again, or say --no-schemas",
        )
    )


def plan_schemas(settings: RegistrySettings, manifest: ArchiveManifest, topics: Sequence[str]) -> SchemaOutcome:
    """What `restore_schemas` would do. Raises ClusterError."""
    with RegistryClient(settings) as registry:
        _, differences, versions = _compare(registry, settings, manifest, topics)
    return _judge(differences, versions, {})


def restore_schemas(settings: RegistrySettings, manifest: ArchiveManifest, topics: Sequence[str]) -> SchemaOutcome:
    """Registers what the registry lacks of the schemas of these topics (names in the archive). Raises ClusterError."""
    with RegistryClient(settings) as registry:
        twins, differences, versions = _compare(registry, settings, manifest, topics)
        flow = _build_flow(manifest.cluster, settings.alias, topics)
        outcomes = carry_schemas(flow, twins, differences, _OTHERWISE) if differences else []
    return _judge(differences, versions, {each.difference: each.error for each in outcomes})


def _compare(
    registry: RegistryClient, settings: RegistrySettings, manifest: ArchiveManifest, topics: Sequence[str]
) -> tuple[VersionMatcher, list[FieldDrift], int]:
    schemas = select_archived_schemas(manifest, topics)
    flow = _build_flow(manifest.cluster, settings.alias, topics)
    twins = build_version_matcher(flow, ArchivedRegistry(schemas), registry)
    return twins, compare_schemas(flow, twins, otherwise=_OTHERWISE), len(schemas)


def _judge(differences: Sequence[FieldDrift], versions: int, errors: dict[FieldDrift, str | None]) -> SchemaOutcome:
    asked = [each for each in differences if each.field.startswith("version ")]
    left = [
        f"{each.name}, {each.field}: {each.why or errors.get(each)}"
        for each in differences
        if not each.applied or errors.get(each)
    ]
    registered = sum(each.applied and not errors.get(each) for each in asked)
    return SchemaOutcome(registered, versions - len(asked), tuple(left))


def _build_flow(source: str, target: str, topics: Sequence[str]) -> PlanFlow:
    """Stands in for the flow whose topics these are."""
    chosen = TopicSelection(tuple(Selector("literal", topic) for topic in topics), allow_internal=True)
    return PlanFlow("restore", source, target, chosen, sync=SyncSettings(schemas=SchemaSync("once")))
