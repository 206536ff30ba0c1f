"""The newest versions in a schema registry beside the `schema` of a flow that opens records by them.

`schema` stays what counts (docs/decisions/0108). A version that does not fit it is told before records are rejected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.record_schemas import read_writer_schema
from watershed.clusters.registry.schema import SchemaVersion
from watershed.clusters.registry.subject_names import SubjectSide, parse_subject
from watershed.clusters.registry.subject_selection import is_subject_of_topics
from watershed.spark.transform.field_plan import FieldPlan
from watershed.spark.transform.field_records import explain_unfit_schema
from watershed.topology.plan import PlanFlow


class UnfitVersion(NamedTuple):
    """The newest version of a subject, whose records would be rejected. reason: what lacks or differs, with the id."""

    subject: str
    version: int
    side: SubjectSide
    reason: str


def find_unfit_versions(flow: PlanFlow, plans: Sequence[FieldPlan], registry: RegistryClient) -> Iterator[UnfitVersion]:
    """Of the subjects that are called after topics of the flow. plans: what it reads and changes, by side. Raises what
    `RegistryClient` raises, CompilerFailed."""
    by_side = _list_opened(plans)
    for side, subject, newest in _list_newest(flow, by_side, registry):
        writer = read_writer_schema(registry, newest.id)
        reason = writer if isinstance(writer, str) else explain_unfit_schema(writer, by_side[side])
        if reason:
            yield UnfitVersion(subject, newest.version, side, reason)


def find_versions_beside_json(
    flow: PlanFlow, sides: Collection[SubjectSide], registry: RegistryClient
) -> Iterator[UnfitVersion]:
    """Of the subjects that are called after topics of the flow. sides: those that it reads as JSON without a schema id.
    Raises what `RegistryClient` raises."""
    for side, subject, newest in _list_newest(flow, sides, registry):
        reason = (
            f"clients that write by a schema (this one is of type {newest.schema.type}) put five bytes with its id in "
            f"front of each {side}, and json is for {side}s without them"
        )
        yield UnfitVersion(subject, newest.version, side, reason)


def find_sides_without_subjects(
    flow: PlanFlow, plans: Sequence[FieldPlan], registry: RegistryClient
) -> list[SubjectSide]:
    """Of those that the flow opens: where no subject is called after a topic of it, so that `find_unfit_versions` has
    nothing to compare. Raises what `RegistryClient` raises."""
    subjects = registry.subjects() if plans else []
    found = {parse_subject(subject).side for subject in subjects if is_subject_of_topics(flow, subject)}
    return [side for side in _list_opened(plans) if side not in found]


def _list_opened(plans: Sequence[FieldPlan]) -> dict[SubjectSide, FieldPlan]:
    return {plan.side: plan for plan in plans if plan.columns.num_fields or plan.sets or plan.drops}


def _list_newest(
    flow: PlanFlow, sides: Collection[SubjectSide], registry: RegistryClient
) -> Iterator[tuple[SubjectSide, str, SchemaVersion]]:
    """The newest version of each subject that is called after a topic of the flow, of these sides."""
    for subject in registry.subjects() if sides else ():
        side = parse_subject(subject).side
        versions = registry.versions(subject) if side in sides and is_subject_of_topics(flow, subject) else []
        newest = registry.version(subject, versions[-1]) if versions else None
        if newest is not None and side is not None:
            yield side, subject, newest
