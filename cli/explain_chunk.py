"""`topology verify --explain CHUNK`: the records of a difference, read from both clusters again.

Needs Spark only for a flow that changes records: what should stand at the target is worked out again."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from watershed.clusters.admin import Admin
from watershed.clusters.claim_rules import find_partition_claims
from watershed.clusters.provenance_header import ProvenanceHeader
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.replicator.ledger.ledger import read_ledger
from watershed.spark.errors import WrongUse
from watershed.spark.evidence.chunk_names import find_chunk_by_name
from watershed.spark.evidence.difference_explanation import (
    ChunkExplanation,
    OriginReader,
    SideReader,
    explain_differences,
)
from watershed.spark.evidence.evidence_folder import SUMMARY_FILE, read_evidence_table, read_summary
from watershed.spark.failure_text import raise_as_spark_error
from watershed.spark.judging.flow_observation import read_flow_facts
from watershed.spark.judging.proof_window import PartitionPair
from watershed.spark.judging.record_ownership import (
    is_target_shared,
    read_feeding_producers,
    read_producers_to_skip,
    read_source_claims,
    read_target_writers,
)
from watershed.spark.proof_scope import build_header_of_copy
from watershed.spark.reading.external_marks import NO_MARKS, ExternalMarks
from watershed.spark.reading.fetch_answers import PartitionAddress
from watershed.spark.reading.offset_range import OffsetRange
from watershed.spark.reading.range_reader import read_all_fingerprints
from watershed.spark.reading.range_requests import RangeRequest
from watershed.spark.reading.schema_id_pairs import NO_ID_REWRITE
from watershed.spark.reading.schema_id_rewrite import read_schema_id_pairs
from watershed.spark.reading.whole_records import read_whole_records
from watershed.spark.session import borrow_spark_session
from watershed.spark.transform.transformed_ranges import read_expected_records, read_transformed_range
from watershed.topology import compile_path
from watershed.topology.errors import TopologyError
from watershed.topology.plan import Plan, PlanFlow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET: Final = {"spark.log.level": "OFF"}  # what it says of an expression that fails names values of records
_REMEDY: Final = "It needs the flow's secrets, as the proof did"
_PROOFS = Path(".watershed") / "proofs"


def explain_chunk(path: Path, name: str, folder: Path | None, form: str, *, reveal: bool) -> int:
    """Print it; exit code 0. Raises WrongUse, ClusterError, NotReadable."""
    from watershed.cli.explain_chunk_text import encode_chunk_explanation, render_chunk_explanation

    folder = folder or _newest()
    document = read_summary(folder)
    chunk = find_chunk_by_name(read_evidence_table(folder, "chunks"), name)
    place = ("flow", "topic", "partition", "chunk")
    diffs = [row for row in read_evidence_table(folder, "diffs") if all(row[each] == chunk[each] for each in place)]
    plan = compile_path(path)
    found = _explained(plan, _flow(plan, chunk, folder), chunk, diffs, folder)
    if form == "json":
        click.echo(json.dumps(encode_chunk_explanation(chunk, found, reveal=reveal), indent=2))
        return 0
    if document.get("plan_hash") not in (None, plan.hash):
        click.echo(f"note: {path} has changed since this proof", err=True)
    click.echo(render_chunk_explanation(chunk, found, reveal=reveal))
    return 0


def _newest() -> Path:
    found = sorted((path for path in _PROOFS.glob(f"*/{SUMMARY_FILE}")), key=lambda path: path.stat().st_mtime)
    if not found:
        raise WrongUse(f"there is no proof below {_PROOFS}; name the folder of one: -o DIR")
    return found[-1].parent


def _flow(plan: Plan, chunk: Mapping[str, Any], folder: Path) -> PlanFlow:
    try:
        return plan.flow(chunk["flow"])
    except TopologyError:
        flows = ", ".join(flow.id for flow in plan.flows) or "none"
        raise WrongUse(
            f"{folder} is a proof of flow {chunk['flow']}, which topology {plan.topology} does not have ({flows})"
        ) from None


def _explained(
    plan: Plan, flow: PlanFlow, chunk: Mapping[str, Any], diffs: list[dict[str, Any]], folder: Path
) -> ChunkExplanation:
    ids = _topic_ids(folder, chunk)
    foreign = chunk["topic"] in _inferred(folder, flow)
    with ExitStack() as stack:
        settings = [resolve_connection_settings(plan.cluster(alias)) for alias in (flow.source, flow.target)]
        source, target = (stack.enter_context(Admin(each)) for each in settings)
        for admin in (source, target):
            admin.check_identity()
        facts = read_flow_facts(flow, source, target, (settings[0], settings[1]), [chunk["topic"]], foreign)
        schema_ids = read_schema_id_pairs(flow, settings[0], settings[1], [] if foreign else [chunk["topic"]])
        skip, only = ((), ()) if foreign else _whose(flow, settings[0], settings[1], target.cluster_id())
        header = None if foreign else _read_header(flow, chunk, source, settings[1])
        claims = (
            find_partition_claims(read_source_claims(settings[0]), chunk["topic"], ids[0], chunk["partition"])
            if skip
            else None
        )
    timestamps = all(pair.timestamps for pair in facts.pairs)
    addresses = (
        PartitionAddress(
            settings[0],
            chunk["topic"],
            ids[0],
            chunk["partition"],
            timestamps,
            frozenset(skip),
            schema_ids.get(chunk["topic"], NO_ID_REWRITE),
            claims=claims,
            marks=_read_marks(flow, chunk["topic"], settings[0]) if not foreign else NO_MARKS,
            header=header,
        ),
        PartitionAddress(
            settings[1], chunk["target_topic"], ids[1], chunk["partition"], timestamps, only=frozenset(only)
        ),
    )
    here, there = (_reader(address) for address in addresses)
    if flow.transform is None or foreign:
        return explain_differences(chunk, diffs, here, there)
    with (
        borrow_spark_session(f"watershed-explain-{plan.topology}", _QUIET) as session,
        raise_as_spark_error("what was expected could not be worked out", _REMEDY),
    ):
        expected = _expected_reader(session, plan, flow, addresses[0])
        return explain_differences(chunk, diffs, expected, there, origin=_origin_reader(flow, addresses))


def _read_header(
    flow: PlanFlow, chunk: Mapping[str, Any], source: Admin, target: ConnectionSettings
) -> ProvenanceHeader | None:
    """What the flow adds to records of the chunk's partition. Raises ClusterError, ReplicatorError."""
    if flow.header is None:
        return None
    topic, number = chunk["topic"], chunk["partition"]
    copied = read_ledger(target, flow=flow.id).map(flow.id, topic, number)
    return build_header_of_copy(flow, source, PartitionPair(flow.id, topic, chunk["target_topic"], number), copied)


def _expected_reader(session: SparkSession, plan: Plan, flow: PlanFlow, address: PartitionAddress) -> SideReader:
    """What should stand at the target of a flow that changes records, by source offset."""

    def build_request(span: OffsetRange) -> RangeRequest:
        return RangeRequest(
            0,
            flow.source,
            address.topic,
            str(address.topic_id),
            address.partition,
            span.start,
            span.end,
            address.timestamps,
            tuple(address.skip),
            address.ids,
            claims=address.claims,
            marks=address.marks,
            transform=flow.transform,
        )

    return SideReader(
        lambda span: read_transformed_range(session, plan, build_request(span)),
        lambda span, at: read_expected_records(session, plan, build_request(span), at),
    )


def _origin_reader(flow: PlanFlow, addresses: tuple[PartitionAddress, PartitionAddress]) -> OriginReader:
    source, target = addresses
    runs = read_ledger(target.settings, flow=flow.id).map(flow.id, source.topic, source.partition)
    plain = replace(source, ids=NO_ID_REWRITE)  # as it is stored
    return OriginReader(runs.to_source, lambda span, at: read_whole_records(plain, span, at))


def _read_marks(flow: PlanFlow, topic: str, source: ConnectionSettings) -> ExternalMarks:
    headers = flow.list_left_out_marks(topic)
    return ExternalMarks(headers, read_feeding_producers(source)) if headers else NO_MARKS


def _whose(
    flow: PlanFlow, source: ConnectionSettings, target: ConnectionSettings, target_id: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Producers that the proof left out at the source, and those that alone counted at the target (none: all)."""
    return read_producers_to_skip(flow, source, target_id), read_target_writers(flow, target).ours if is_target_shared(
        flow
    ) else ()


def _reader(address: PartitionAddress) -> SideReader:
    return SideReader(
        lambda span: read_all_fingerprints(address, span), lambda span, at: read_whole_records(address, span, at)
    )


def _topic_ids(folder: Path, chunk: Mapping[str, Any]) -> tuple[uuid.UUID, uuid.UUID]:
    """Those that the proof has read: a topic that was made anew since is not shown in their place."""
    for row in read_evidence_table(folder, "partitions"):
        if all(row[name] == chunk[name] for name in ("flow", "topic", "partition")) and row["source_id"]:
            return uuid.UUID(row["source_id"]), uuid.UUID(row["target_id"])
    raise WrongUse(f"{folder} has no window of {chunk['topic']}-{chunk['partition']}")


def _inferred(folder: Path, flow: PlanFlow) -> set[str]:
    topics = read_summary(folder).get("topics", [])
    return {each["topic"] for each in topics if each["flow"] == flow.id and each.get("alignment") == "inferred"}
