"""The newest versions in a schema registry beside the `schema` of a flow that opens records by them.

`schema` stays what counts (docs/decisions/0108). A version that does not fit it is told before records are rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.record_schemas import read_writer_schema
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
    for subject in registry.subjects() if by_side else ():
        side = parse_subject(subject).side
        versions = registry.versions(subject) if side in by_side and is_subject_of_topics(flow, subject) else []
        newest = registry.version(subject, versions[-1]) if versions else None
        if newest is None or side is None:
            continue
        writer = read_writer_schema(registry, newest.id)
        reason = writer if isinstance(writer, str) else explain_unfit_schema(writer, by_side[side])
        if reason:
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
