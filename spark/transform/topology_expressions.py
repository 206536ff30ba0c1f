"""The expressions of topology files, judged and planned by Spark: `topology lint --spark`, `topology plan --spark`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from watershed.clusters.registry.client import RegistryClient
from watershed.clusters.registry.registry_settings import resolve_registry_settings
from watershed.clusters.registry.subject_names import SUBJECT_SIDES, SubjectSide
from watershed.clusters.settings import resolve_connection_settings
from watershed.spark.session import borrow_spark_session
from watershed.spark.transform.compiled_transform import compile_transform, find_wrong_expressions, plan_fields
from watershed.spark.transform.newest_schemas import (
    find_sides_without_subjects,
    find_unfit_versions,
    find_versions_beside_json,
)
from watershed.topology.finding import Label, Problem
from watershed.topology.loader import LoadedTopology
from watershed.topology.model import CheckedValue, Flow
from watershed.topology.plan import Plan
from watershed.topology.record_transform import RecordTransform, parse_changed_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CODE = "SYN015"


def add_expression_problems(files: Sequence[LoadedTopology], *, ask_registries: bool = False) -> list[LoadedTopology]:
    """The same files, with a problem for each flow whose expressions Spark does not take. No session is started where
    no flow has `transform`. ask_registries: also compare `schema` with the newest versions in the schema registries of
    sources. Raises SparkError, with `ask_registries` ClusterError."""
    if not any(_list_flows(loaded) for loaded in files):
        return list(files)
    with borrow_spark_session("watershed-lint", {}) as session:
        found = []
        for loaded in files:
            problems = list(_find_problems(session, _list_flows(loaded)))
            if ask_registries and not problems:
                problems += _find_unfit_schemas(loaded)
            found.append(replace(loaded, problems=(*loaded.problems, *problems)))
        return found


def hash_spark_plans(plan: Plan) -> dict[str, str]:
    """Flow id → `CompiledTransform.hash`, of the flows that change records and whose expressions Spark takes. Raises
    SparkError."""
    changing = {flow.id: flow.transform for flow in plan.flows if flow.transform is not None}
    if not changing:
        return {}
    with borrow_spark_session("watershed-plan", {}) as session:
        return {
            id: compile_transform(session, transform).hash
            for id, transform in changing.items()
            if not any(find_wrong_expressions(session, transform))
        }


def _list_flows(loaded: LoadedTopology) -> list[Flow]:
    flows = () if loaded.topology is None else loaded.topology.flows
    return [flow for flow in flows if flow.plan.transform is not None]


def _find_problems(session: SparkSession, flows: Sequence[Flow]) -> Iterator[Problem]:
    for flow in flows:
        assert flow.plan.transform is not None
        for error in find_wrong_expressions(session, flow.plan.transform):
            key, _, name = error.path.partition(".")
            place = (key, name) if name else (key,)
            yield Problem(
                _CODE,
                f"flow {flow.id}: {error.reason}",
                (Label(flow.settings.where("transform", *place), "Spark does not take this"),),
                path=f"{flow.path}.transform.{error.path}",
                ids=(flow.id,),
                help="docs/transform.md says what expressions see, and which functions there are",
            )


def _find_unfit_schemas(loaded: LoadedTopology) -> Iterator[Problem]:
    """Of flows whose source has a registry and whose records are opened, by its schemas or as JSON. Raises
    ClusterError."""
    topology = loaded.topology
    for flow in _list_flows(loaded):
        assert flow.plan.transform is not None
        assert topology is not None
        known = topology.root.at("clusters", flow.source, "schema_registry")
        plain = _list_opened_json(flow.plan.transform)
        if known is None or not (flow.plan.transform.registry_sides or plain):
            continue  # without a registry it is SYC521
        settings = resolve_connection_settings(topology.clusters[flow.source])
        plans = plan_fields(flow.plan.transform)
        with RegistryClient(resolve_registry_settings(settings)) as registry:
            for beside in find_versions_beside_json(flow.plan, plain, registry):
                yield _build_problem(
                    flow,
                    beside.side,
                    beside.subject,
                    f"records of {beside.subject} ({beside.version}) would be rejected: {beside.reason}",
                    "JSON from the first byte on",
                    known,
                    "avro and protobuf are opened by the registry, so say that format where it is the subject's type. "
                    f"Of JSON Schema, say bytes, and read a field by get_json_object(decode(substring({beside.side}, 6)"
                    ", 'UTF-8'), '$.FIELD'). Where producers write plain JSON in spite of the subject, this is right",
                )
            for side in find_sides_without_subjects(flow.plan, plans, registry):
                yield _build_problem(
                    flow,
                    side,
                    "",
                    f"{flow.source}'s registry has no subject for {side}s of a topic of it (TOPIC-{side}), so that "
                    "nothing was compared",
                    "no version of a schema beside it",
                    known,
                    "look at the address and at how producers name subjects (TopicNameStrategy is what is compared); "
                    "before the first record is written, this is right",
                )
            for unfit in find_unfit_versions(flow.plan, plans, registry):
                yield _build_problem(
                    flow,
                    unfit.side,
                    unfit.subject,
                    f"records of the newest version of {unfit.subject} ({unfit.version}) would be rejected: "
                    f"{unfit.reason}",
                    "another type, or no such field",
                    known,
                    "say the name (as it is written there) and the type that the version has, or leave the field out; "
                    "where the schema is of another type, change `transform.format`; docs/transform.md says which "
                    "types fit, and what becomes of records that do not",
                )


def _list_opened_json(transform: RecordTransform) -> list[SubjectSide]:
    """Sides of JSON of which each record is opened, because the file names fields of it."""
    named = {
        part.part for path in (*dict(transform.changes), *transform.drops) if (part := parse_changed_part(path)).names
    }
    return [
        side
        for side in SUBJECT_SIDES
        if transform.find_format(side) == "json" and (side in dict(transform.schemas) or side in named)
    ]


def _build_problem(
    flow: Flow, side: SubjectSide, subject: str, message: str, label: str, registry: CheckedValue, help: str
) -> Problem:
    assert flow.plan.transform is not None
    key = "schema" if side in dict(flow.plan.transform.schemas) else "format"
    return Problem(
        _CODE,
        f"flow {flow.id}: {message}",
        (Label(flow.settings.where("transform", key, side), label), Label(registry.span, "this registry says so")),
        path=f"{flow.path}.transform.{key}.{side}",
        ids=(flow.id, subject or side),
        help=help,
        severity="warning",
    )
