"""Flows and proofs as datasets of OpenLineage, for the provider's hooks in our operators (docs/lineage.md).

Airflow calls these hooks only where the package apache-airflow-providers-openlineage is installed and switched on, so
that its classes are imported inside the functions. Nothing here asks a cluster, and no secret is read: the plan has
references only. Expressions of `transform` stay here, because they may hold literals of the company (decision 0132).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from watershed.clusters.private_files import read_private_file
from watershed.cutover.evidence.proof_summary import PROOF_COUNTS, PROVEN_VERDICTS
from watershed.topology.record_expressions import find_read_fields, split_schema_fields

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import (
        DatasetFacet,
        column_lineage_dataset,
        data_quality_assertions_dataset,
    )

    from watershed.topology.plan import Plan, PlanCluster, PlanFlow
    from watershed.topology.record_transform import RecordTransform

MOST_EVENT_TOPICS: Final = (
    1_000  # of an event: catalogs refuse bodies of many megabytes, and a dataset with facets has 1 to 2 KB
)
_SIDES: Final = ("key", "value")


def bound_topics(topics: Mapping[str, Iterable[str]]) -> tuple[dict[str, list[str]], int]:
    """Flow → source topics, sorted, MOST_EVENT_TOPICS of them at most; and how many were left out."""
    kept: dict[str, list[str]] = {}
    free, left_out = MOST_EVENT_TOPICS, 0
    for flow in sorted(topics):
        names = sorted(topics[flow])
        kept[flow] = names[:free]
        left_out += len(names) - len(kept[flow])
        free -= len(kept[flow])
    return kept, left_out


def build_copy_lineage(plan: Plan, topics: Mapping[str, Sequence[str]]) -> OperatorLineage[Any, Any]:
    """What the workers of these flows read and write. topics: flow id → the source topics that it copies.

    Each output names the inputs that it is made of: without that, a reader would join every input of the task with
    every output. Raises NotInPlan.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset

    inputs: dict[tuple[str, str], InputDataset] = {}
    sources: dict[tuple[str, str], list[tuple[PlanFlow, str]]] = {}
    for flow_id, names in topics.items():
        flow = plan.flow(flow_id)
        source, target = plan.cluster(flow.source), plan.cluster(flow.target)
        for topic in names:
            at = (name_kafka_namespace(source), topic)
            facets = _build_symlinks(source, topic) | _build_schema(flow.transform, [])
            inputs.setdefault(at, InputDataset(*at, facets=facets))
            written = (name_kafka_namespace(target), flow.target_topic(topic))
            sources.setdefault(written, []).append((flow, topic))
    outputs = []
    for (namespace, name), origins in sources.items():
        flow, _ = origins[0]
        facets = _build_symlinks(plan.cluster(flow.target), name) | _build_lineage(plan, origins)
        dropped = [] if flow.transform is None else list(flow.transform.drops)
        outputs.append(OutputDataset(namespace, name, facets=facets | _build_schema(flow.transform, dropped)))
    return OperatorLineage(inputs=list(inputs.values()), outputs=outputs)


def read_proof_lineage(plan: Plan, summary: Path) -> OperatorLineage[Any, Any] | None:
    """What a proof read and found (`build_proof_lineage`); None where it left no summary. Raises ValueError for a
    summary that is none, or of another plan."""
    try:
        document = json.loads(read_private_file(summary))
        return build_proof_lineage(plan, document)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{summary} is not the summary of a proof of {plan.topology} ({error!r})") from None


def build_proof_lineage(plan: Plan, document: Mapping[str, Any]) -> OperatorLineage[Any, Any]:
    """Both sides of every topic as inputs: a proof writes no records. document: a proof's `summary.json`.

    The target's topic has an assertion for each flow into it, with the verdict's counts. The source's topic has the
    number of records that were read. Raises KeyError, TypeError, NotInPlan for a document that is no summary of this
    plan.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import data_quality_assertions_dataset, data_quality_metrics_input_dataset

    inputs: dict[tuple[str, str], InputDataset] = {}
    assertions: dict[tuple[str, str], list[data_quality_assertions_dataset.Assertion]] = {}
    for line in document.get("topics", ())[:MOST_EVENT_TOPICS]:
        flow = plan.flow(line["flow"])
        source, target = plan.cluster(flow.source), plan.cluster(flow.target)
        read = data_quality_metrics_input_dataset.DataQualityMetricsInputDatasetFacet(
            columnMetrics={}, rowCount=int(line["records"]), bytes=int(line["bytes"])
        )
        at = (name_kafka_namespace(source), line["topic"])
        inputs[at] = InputDataset(
            *at, facets=_build_symlinks(source, line["topic"]), inputFacets={"dataQualityMetrics": read}
        )
        copy = (name_kafka_namespace(target), line["target_topic"])
        inputs.setdefault(copy, InputDataset(*copy, facets=_build_symlinks(target, line["target_topic"])))
        assertions.setdefault(copy, []).append(_build_assertion(document, line))
    for copy, found in assertions.items():
        facet = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(assertions=found)
        kept = inputs[copy].inputFacets or {}
        inputs[copy].inputFacets = {**kept, "dataQualityAssertions": facet}
    return OperatorLineage(inputs=list(inputs.values()))


def name_kafka_namespace(cluster: PlanCluster) -> str:
    """`kafka://host:port` of the cluster's first address, as OpenLineage's naming has it. Its other addresses are in
    the dataset's symlinks."""
    return _name_address(cluster.bootstrap[0])


def _name_address(address: str) -> str:
    from openlineage.client.naming.dataset import Kafka

    host, _, port = address.rpartition(":")
    return Kafka(host, port, "-").get_namespace()  # no topic: each has the namespace of its cluster


def _build_symlinks(cluster: PlanCluster, topic: str) -> dict[str, DatasetFacet]:
    """The same topic under the other addresses of its cluster, by which other tools may know it."""
    from openlineage.client.facet_v2 import symlinks_dataset

    others = [symlinks_dataset.Identifier(_name_address(each), topic, "TOPIC") for each in cluster.bootstrap[1:]]
    return {"symlinks": symlinks_dataset.SymlinksDatasetFacet(identifiers=others)} if others else {}


def _build_schema(transform: RecordTransform | None, dropped: Sequence[str]) -> dict[str, DatasetFacet]:
    """The fields that the file names. Without `schema` in the file nothing is known here."""
    from openlineage.client.facet_v2 import schema_dataset

    if transform is None or not transform.schemas:
        return {}
    sides = []
    for side, text in transform.schemas:
        fields = [(name, kind) for name, kind in split_schema_fields(text) if f"{side}.{name}" not in dropped]
        nested = [schema_dataset.SchemaDatasetFacetFields(name=name, type=kind) for name, kind in fields]
        form = transform.find_format(side)
        told = "The fields that the topology file names; records may have more."
        sides.append(schema_dataset.SchemaDatasetFacetFields(name=side, type=form, description=told, fields=nested))
    return {"schema": schema_dataset.SchemaDatasetFacet(fields=sides)}


def _build_lineage(plan: Plan, origins: Sequence[tuple[PlanFlow, str]]) -> dict[str, DatasetFacet]:
    """The topics that a target topic is made of; with fields where a flow changes records. origins: flow and source
    topic."""
    from openlineage.client.facet_v2 import column_lineage_dataset, lineage

    fields: dict[str, list[column_lineage_dataset.InputField]] = {}
    whole: list[column_lineage_dataset.InputField] = []
    made_of = []
    for flow, topic in origins:
        namespace = name_kafka_namespace(plan.cluster(flow.source))
        kind = "IDENTITY" if flow.transform is None else "TRANSFORMATION"
        step = lineage.LineageTransformation(type="DIRECT", subtype=kind, description=f"flow {flow.id}")
        made_of.append(lineage.LineageDatasetInput(namespace, topic, "DATASET", transformations=[step]))
        if flow.transform is not None:
            _add_field_lineage(flow.transform, (namespace, topic), fields, whole)
    facets: dict[str, DatasetFacet] = {"lineage": lineage.LineageDatasetFacet(inputs=[*made_of])}
    if fields or whole:
        facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(
            fields={name: column_lineage_dataset.Fields(inputFields=found) for name, found in fields.items()},
            dataset=whole,
        )
    return facets


def _add_field_lineage(
    transform: RecordTransform,
    source: tuple[str, str],
    fields: dict[str, list[column_lineage_dataset.InputField]],
    whole: list[column_lineage_dataset.InputField],
) -> None:
    """Of what `set` writes, the fields that its expression reads; of what it does not touch, the field itself. What
    `where` reads decides about whole records."""
    from openlineage.client.facet_v2 import column_lineage_dataset

    def describe(read: str, kind: str, subtype: str) -> column_lineage_dataset.InputField:
        step = column_lineage_dataset.Transformation(type=kind, subtype=subtype)
        return column_lineage_dataset.InputField(*source, read, [step])

    changes = dict(transform.changes)
    for path, text in changes.items():
        read = [describe(name, "DIRECT", "TRANSFORMATION") for name in find_read_fields(text)]
        fields.setdefault(path, []).extend(read)
    named = [f"{side}.{name}" for side, text in transform.schemas for name, _ in split_schema_fields(text)]
    touched = (*changes, *transform.drops)
    untouched = [side for side in _SIDES if not any(_is_below(path, side) for path in (*named, *touched))]
    for name in (*untouched, *(each for each in named if not any(_is_below(path, each) for path in touched))):
        fields.setdefault(name, []).append(describe(name, "DIRECT", "IDENTITY"))
    if transform.where is not None:
        whole.extend(describe(name, "INDIRECT", "FILTER") for name in find_read_fields(transform.where))


def _is_below(path: str, field: str) -> bool:
    """Whether the path is the field, or a part of it."""
    return path == field or path.startswith(f"{field}.")


def _build_assertion(document: Mapping[str, Any], line: Mapping[str, Any]) -> data_quality_assertions_dataset.Assertion:
    """Of one topic of a proof. It holds where nothing is unproven there and the whole proof is proven: what stands in
    the way of the verdict may belong to no topic."""
    from openlineage.client.facet_v2 import data_quality_assertions_dataset

    unproven = int(line["unproven"])
    counts = {name: line[name] for name in PROOF_COUNTS if line.get(name) is not None}
    about = {name: document.get(name) for name in ("verdict", "level", "mode", "proof_root", "plan_hash", "run_id")}
    return data_quality_assertions_dataset.Assertion(
        assertion="watershed_proof",
        success=unproven == 0 and document["verdict"] in PROVEN_VERDICTS,
        severity="error",
        name=f"{line['flow']}: {line['topic']} to {line['target_topic']}",
        description="Every record of the source stands on the target where it belongs, unchanged.",
        expected="0 unproven",
        actual=f"{unproven} unproven",
        params={**{name: each for name, each in about.items() if each is not None}, **counts},
    )
