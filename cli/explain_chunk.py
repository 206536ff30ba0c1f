"""`topology verify --explain CHUNK`: the records of a difference, read from both clusters again. Needs no Spark."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from clusters.admin import Admin
from clusters.claims import claims_of
from clusters.settings import ConnectionSettings, connection_settings
from spark.errors import WrongUse
from spark.evidence.explain import Explanation, Reader, explain
from spark.evidence.folder import SUMMARY, read_document, read_table
from spark.evidence.naming import chunk_named
from spark.judging.observe import flow_facts
from spark.judging.whose import claimed_at_source, left_out_at_source, shared, writers_at
from spark.reading.ids import AS_THEY_ARE
from spark.reading.ranges import PartitionAddress, read_all
from spark.reading.records import whole_records
from spark.reading.schema_ids import translated_ids
from topology import compile_path
from topology.errors import TopologyError
from topology.plan import Plan, PlanFlow

_PROOFS = Path(".watershed") / "proofs"


def explain_chunk(path: Path, name: str, folder: Path | None, form: str, *, reveal: bool) -> int:
    """Print it; exit code 0. Raises WrongUse, ClusterError, NotReadable."""
    from cli.explain_text import explanation_json, explanation_text

    folder = folder or _newest()
    document = read_document(folder)
    chunk = chunk_named(read_table(folder, "chunks"), name)
    place = ("flow", "topic", "partition", "chunk")
    diffs = [row for row in read_table(folder, "diffs") if all(row[each] == chunk[each] for each in place)]
    plan = compile_path(path)
    found = _explained(plan, _flow(plan, chunk, folder), chunk, diffs, folder)
    if form == "json":
        click.echo(json.dumps(explanation_json(chunk, found, reveal=reveal), indent=2))
        return 0
    if document.get("plan_hash") not in (None, plan.hash):
        click.echo(f"note: {path} has changed since this proof", err=True)
    click.echo(explanation_text(chunk, found, reveal=reveal))
    return 0


def _newest() -> Path:
    found = sorted((path for path in _PROOFS.glob(f"*/{SUMMARY}")), key=lambda path: path.stat().st_mtime)
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
) -> Explanation:
    ids = _topic_ids(folder, chunk)
    with ExitStack() as stack:
        settings = [connection_settings(plan.cluster(alias)) for alias in (flow.source, flow.target)]
        source, target = (stack.enter_context(Admin(each)) for each in settings)
        for admin in (source, target):
            admin.check_identity()
        foreign = chunk["topic"] in _inferred(folder, flow)
        facts = flow_facts(flow, source, target, (settings[0], settings[1]), [chunk["topic"]], foreign)
        schema_ids = translated_ids(flow, settings[0], settings[1], [] if foreign else [chunk["topic"]])
        skip, only = ((), ()) if foreign else _whose(flow, settings[0], settings[1], target.cluster_id())
        claims = claims_of(claimed_at_source(settings[0]), chunk["topic"], ids[0], chunk["partition"]) if skip else None
    timestamps = all(pair.timestamps for pair in facts.pairs)
    addresses = (
        PartitionAddress(
            settings[0],
            chunk["topic"],
            ids[0],
            chunk["partition"],
            timestamps,
            frozenset(skip),
            schema_ids.get(chunk["topic"], AS_THEY_ARE),
            claims=claims,
        ),
        PartitionAddress(
            settings[1], chunk["target_topic"], ids[1], chunk["partition"], timestamps, only=frozenset(only)
        ),
    )
    here, there = (_reader(address) for address in addresses)
    return explain(chunk, diffs, here, there)


def _whose(
    flow: PlanFlow, source: ConnectionSettings, target: ConnectionSettings, target_id: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Producers that the proof left out at the source, and those that alone counted at the target (none: all)."""
    return left_out_at_source(flow, source, target_id), writers_at(flow, target).ours if shared(flow) else ()


def _reader(address: PartitionAddress) -> Reader:
    return Reader(lambda span: read_all(address, span), lambda span, at: whole_records(address, span, at))


def _topic_ids(folder: Path, chunk: Mapping[str, Any]) -> tuple[uuid.UUID, uuid.UUID]:
    """Those that the proof has read: a topic that was made anew since is not shown in their place."""
    for row in read_table(folder, "partitions"):
        if all(row[name] == chunk[name] for name in ("flow", "topic", "partition")) and row["source_id"]:
            return uuid.UUID(row["source_id"]), uuid.UUID(row["target_id"])
    raise WrongUse(f"{folder} has no window of {chunk['topic']}-{chunk['partition']}")


def _inferred(folder: Path, flow: PlanFlow) -> set[str]:
    topics = read_document(folder).get("topics", [])
    return {each["topic"] for each in topics if each["flow"] == flow.id and each.get("alignment") == "inferred"}
