"""One proof, from the plan and both clusters to the evidence.

The order of the steps matters: positions of groups are read before the window is fixed, so what a group has read lies
in the window; schema ids are read behind the barrier, so what was copied below it has its schema at the target; the
source is checked for late records after the comparison.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watershed.clusters.admin import Admin
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.product_version import describe_product_version
from watershed.spark.errors import WrongUse
from watershed.spark.evidence.evidence_folder import write_evidence_folder
from watershed.spark.evidence.proof_results import ProofFindings, build_results, build_run_id
from watershed.spark.foreign.aborted_records import find_copied_aborted_records
from watershed.spark.foreign.inferred_alignment import build_spark_sampler, observe_foreign_copy
from watershed.spark.foreign.mirrormaker_hints import read_mirrormaker_hints
from watershed.spark.judging.coverage_warnings import (
    describe_flows_left_out,
    find_deleted_topics,
    find_partitions_without_source,
)
from watershed.spark.judging.earlier_proof import EarlierProof, read_earlier_proof
from watershed.spark.judging.flow_observation import (
    AlignmentReader,
    FlowFacts,
    observe_partitions,
    read_flow_facts,
    read_ledger_alignment,
)
from watershed.spark.judging.group_position_landing import LandedPosition
from watershed.spark.judging.group_position_reading import (
    FlowGroupPositions,
    GroupSelection,
    add_group_findings,
    read_group_positions,
    run_landing_tests,
)
from watershed.spark.judging.proof import ComparisonOutcome, compare_and_judge
from watershed.spark.judging.proof_inputs import ProofPartition, ProofReaders
from watershed.spark.judging.proof_window import ObservedPartition, PartitionPair
from watershed.spark.judging.quarantine_side import build_quarantine_facts, read_quarantined_records
from watershed.spark.judging.record_difference import MAX_DIFFERENCE_EXAMPLES
from watershed.spark.judging.record_ownership import describe_application_records, read_own_producer_ids
from watershed.spark.judging.source_truncation import exclude_truncated_ends
from watershed.spark.judging.verdict import Counts, ProofJudgement
from watershed.spark.judging.writes_after_fence import add_fence_findings, describe_open_transactions
from watershed.spark.progress import build_progress_printer
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_scope import count_without_copy, find_partitions_not_begun, fix_partitions
from watershed.spark.proof_session import start_proof_session
from watershed.spark.reading.range_requests import RangeRequest
from watershed.spark.reading.read_limits import ReadLimits, build_read_limits
from watershed.spark.reading.schema_id_rewrite import read_schema_id_pairs
from watershed.spark.session import end_session
from watershed.spark.spark_range_readers import build_spark_readers, count_range_records, open_small_range_reader
from watershed.spark.transform.compiled_transform import compile_transform
from watershed.topology.plan import Plan, PlanFlow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def prove_flows(
    plan: Plan,
    request: ProofRequest,
    out: Path,
    *,
    alignment: AlignmentReader = read_ledger_alignment,
    session: Callable[[], SparkSession] | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> dict[str, Any]:
    """Prove the flows of a plan, write the evidence to `out` and return the summary.

    session: gives the Spark session, called when there is something to read; None: one is started and ended here.
    Raises SparkError, ClusterError, ReplicatorError when no proof can be made.
    """
    began = time.time()
    flows = _select_flows(plan, request)
    level = request.choose_level(flows)
    if request.foreign and level == "L3":
        raise WrongUse("level L3 tries groups' positions by the flow's own ledger; a foreign copy has none: use L2")
    summary: dict[str, Any] = {
        "topology": plan.topology,
        "plan_hash": plan.hash,
        "run_id": build_run_id(began),
        "level": level,
        "mode": request.mode,
        "started_at": render_iso_timestamp(began),
        "flows": [flow.id for flow in flows],
    }
    earlier = read_earlier_proof(request.since) if request.since else EarlierProof()
    with ExitStack() as stack:
        run = _ProofRun(
            plan,
            request,
            level,
            flows,
            earlier,
            _ClusterAccess(plan, stack),
            _SessionOnDemand(session, stack, plan.topology, say),
            build_read_limits(plan, flows, request.max_rate),
            alignment,
            say,
            summary,
        )
        observations = [_FlowObservation(facts) for facts in _read_facts(run)]
        findings, notes = (_judge_topics if level == "L0" else _prove_records)(run, observations)
        planned = summary.pop("spark_plans", {})
        summary |= {
            "ended_at": render_iso_timestamp(time.time()),
            "seconds": round(time.time() - began, 1),
            "policy": request.to_json(),
            "watershed_version": describe_product_version(),
            "guarantees": {each.facts.flow.id: each.facts.guarantee for each in observations},
            "transforms": {
                flow.id: {"transform": flow.transform.hash, "spark_plan": planned.get(flow.id)}
                for flow in flows
                if flow.transform is not None
            },
        }
        flow_notes = [note for each in observations for note in each.facts.notes]
        document, tables = build_results(findings, summary, [*flow_notes, *notes])
        write_evidence_folder(out, document, tables)
        return document


class _ClusterAccess:
    """Connections of one proof: one admin client a cluster, closed with the stack."""

    def __init__(self, plan: Plan, stack: ExitStack) -> None:
        self._plan, self._stack = plan, stack
        self._admins: dict[str, Admin] = {}

    def open(self, alias: str) -> tuple[Admin, ConnectionSettings]:
        """Raises WrongCluster and other ClusterErrors."""
        settings = resolve_connection_settings(self._plan.cluster(alias))
        if alias not in self._admins:
            admin = self._stack.enter_context(Admin(settings))
            admin.check_identity()
            self._admins[alias] = admin
        return self._admins[alias], settings


class _SessionOnDemand:
    """The Spark session of a proof, started when the first range is read: it costs five to ten seconds."""

    def __init__(
        self, give: Callable[[], SparkSession] | None, stack: ExitStack, topology: str, say: Callable[[str], None]
    ) -> None:
        self._give, self._stack, self._topology, self._say = give, stack, topology, say
        self._used: SparkSession | None = None

    def __call__(self) -> SparkSession:
        self._used = self._start() if self._give is None else self._give()
        return self._used

    def _start(self) -> SparkSession:
        from pyspark.sql import SparkSession

        there = SparkSession.getActiveSession()
        if there is None:
            there = start_proof_session(self._topology, self._say)
            self._stack.callback(end_session, there)
        return there

    def describe_engine(self) -> dict[str, Any]:
        """Master and version of the session that read; empty where nothing was read."""
        if self._used is None:
            return {}
        return {"engine": f"spark {self._used.sparkContext.master}", "spark_version": self._used.version}

    def hash_plans(self, flows: Iterable[PlanFlow]) -> dict[str, str]:
        """Flow id → hash of the plan of Spark that was applied to its source; empty where nothing was read."""
        if self._used is None:
            return {}
        return {flow.id: compile_transform(self._used, flow.transform).hash for flow in flows if flow.transform}


@dataclass(frozen=True, slots=True)
class _ProofRun:
    """What all steps of one proof share. summary: what they add to `summary.json`."""

    plan: Plan
    request: ProofRequest
    level: str
    flows: Sequence[PlanFlow]
    earlier: EarlierProof
    clusters: _ClusterAccess
    session: _SessionOnDemand
    limits: ReadLimits
    alignment: AlignmentReader
    say: Callable[[str], None]
    summary: dict[str, Any]


@dataclass(slots=True)
class _FlowObservation:
    """What a proof knows of one flow; each step adds its part."""

    facts: FlowFacts
    positions: FlowGroupPositions = field(default_factory=FlowGroupPositions)
    reread_positions: Callable[[], FlowGroupPositions] = FlowGroupPositions
    observed: list[ObservedPartition] = field(default_factory=list)
    partitions: list[ProofPartition] = field(default_factory=list)


def _select_flows(plan: Plan, request: ProofRequest) -> list[PlanFlow]:
    if request.from_start and not request.foreign:
        raise WrongUse("--from-start is for --foreign copies; for a flow of ours its `start` in the file counts")
    known = [flow.id for flow in plan.flows]
    for id_ in request.flows:
        if id_ not in known:
            raise WrongUse(f"topology {plan.topology} has no flow {id_}; it has {', '.join(known) or 'none'}")
    return request.list_flows(plan)


def _read_facts(run: _ProofRun) -> list[FlowFacts]:
    """Topics of every flow on both clusters. Raises WrongUse for a topic that no flow selects, ClusterError."""
    topics, found = run.request.topics, []
    for flow in run.flows:
        source, target = run.clusters.open(flow.source), run.clusters.open(flow.target)
        only = [topic for topic in topics if len(run.flows) == 1 or flow.selects(topic)]
        settings = source[1], target[1]
        found.append(read_flow_facts(flow, source[0], target[0], settings, only or None, run.request.foreign))
    for topic in topics:
        if not any(flow.selects(topic) for flow in run.flows):
            raise WrongUse(f"no flow selects topic {topic} ({', '.join(flow.id for flow in run.flows)})")
    return found


def _judge_topics(_run: _ProofRun, flows: Sequence[_FlowObservation]) -> tuple[ProofFindings, list[str]]:
    """Level L0: findings and notes (what was not compared) without reading a record."""
    blocks = [block for flow in flows for block in flow.facts.blocks]
    blocks.append("level L0 looks at the topics only; no record was compared, so nothing is proven")
    return ProofFindings(ProofJudgement({}, tuple(blocks))), ["records (level L0)", "consumer groups (level L0)"]


def _prove_records(run: _ProofRun, flows: Sequence[_FlowObservation]) -> tuple[ProofFindings, list[str]]:
    """Levels L1 to L3: findings, and notes of what was not compared."""
    request = run.request
    selection = GroupSelection.of(run.flows, request.groups) if run.level == "L3" else GroupSelection()
    _read_positions(run, flows, selection)
    outside: dict[PartitionPair, Counts] = {}
    for flow in flows:
        flow.observed = (_observe_foreign_flow if request.foreign else _observe_own_flow)(run, flow.facts)
        flow.partitions = _fix_partitions(run, flow)
        outside |= count_without_copy(flow.facts) | flow.facts.unusable
    partitions = [each for flow in flows for each in flow.partitions]
    run.summary["fixed_at"] = render_iso_timestamp(time.time())
    run.say(f"window fixed: {len(partitions)} partitions of {len(flows)} flows")

    readers = build_spark_readers(run.session, run.plan, build_progress_printer(run.say), run.limits, run.say)
    blocks = _find_coverage_gaps(flows, bool(request.topics))
    if not partitions and not outside:
        blocks.append("there was nothing to compare: no running flow selects a topic that exists")
    outcome = _compare(run, partitions, readers, blocks, outside)
    judgement = replace(outcome.judgement, allow_quarantined=request.allow_quarantined)
    run.summary["quarantine"] = build_quarantine_facts(partitions, outcome.confirmed)
    if not judgement.errors:
        for flow in flows:
            if flow.facts.only:
                flow.facts.notes += describe_application_records(flow.partitions, flow.facts.writers, readers)
    if request.foreign:
        aborted = find_copied_aborted_records(run.plan, partitions, outcome.confirmed)
        judgement = replace(judgement, blocks=(*judgement.blocks, *aborted))
    if request.final:
        judgement = _add_fence_state(run, flows, judgement)
    run.say(f"compared {len(outcome.rows)} chunks")
    judgement, landed = _add_position_results(run, flows, judgement)

    run.summary.update(run.session.describe_engine())
    run.summary["spark_plans"] = run.session.hash_plans(run.flows)
    run.summary["alignments"] = {
        (flow.facts.flow.id, topic): how for flow in flows for topic, how in flow.facts.alignments.items()
    }
    windows = [partition.window for partition in partitions]
    notes = [
        *selection.left_out(run.flows),
        *describe_flows_left_out(run.plan.flows, run.flows, bool(request.flows)),
    ]
    return ProofFindings(judgement, outcome.rows, outcome.confirmed, windows, landed), notes


def _read_positions(run: _ProofRun, flows: Sequence[_FlowObservation], selection: GroupSelection) -> None:
    for flow in flows:
        topics = {pair.source.name for pair in flow.facts.pairs}
        flow.reread_positions = partial(read_group_positions, selection, flow.facts.flow, run.clusters.open, topics)
        flow.positions = flow.reread_positions()
    selection.check({flow.facts.flow.id: flow.positions for flow in flows})


def _observe_foreign_flow(run: _ProofRun, facts: FlowFacts) -> list[ObservedPartition]:
    sampler = build_spark_sampler(run.plan, run.session, run.limits)
    hints = partial(read_mirrormaker_hints, run.clusters.open(facts.flow.source)[1], facts)
    request = run.request
    return observe_foreign_copy(facts, sampler, wait=request.wait, earliest=request.from_start, hints=hints)


def _observe_own_flow(run: _ProofRun, facts: FlowFacts) -> list[ObservedPartition]:
    count = partial(count_range_records, run.plan)

    def is_all_copied(o: ObservedPartition) -> bool:
        position, place = o.map.source_position(o.target.end), o.place
        claims = facts.claims_of(place.topic, o.ids[0], place.partition)
        wanted = RangeRequest(
            0,
            facts.flow.source,
            place.topic,
            str(o.ids[0]),
            place.partition,
            position,
            o.barrier,
            skip=facts.skip,
            claims=claims,
            marks=facts.marks_of(place.topic),
        )
        return count(wanted) == 0

    observed = observe_partitions(facts, run.alignment, wait=run.request.wait, settled=is_all_copied)
    own_ids = partial(read_own_producer_ids, facts.flow, facts.target_settings)
    return exclude_truncated_ends(facts, observed, own_ids, count)


def _fix_partitions(run: _ProofRun, flow: _FlowObservation) -> list[ProofPartition]:
    """Reads schema ids and quarantine, behind the barrier: what was copied below it had its schema at the target."""
    facts, foreign = flow.facts, run.request.foreign
    source = run.clusters.open(facts.flow.source)[1]
    topics = [] if foreign else [pair.source.name for pair in facts.pairs]
    ids = read_schema_id_pairs(facts.flow, source, facts.target_settings, topics)
    quarantine = {} if foreign else read_quarantined_records(facts.target_settings, facts.flow)
    return fix_partitions(facts, flow.observed, run.request, run.earlier, source, ids, quarantine)


def _find_coverage_gaps(flows: Sequence[_FlowObservation], topics_named: bool) -> list[str]:
    """Findings of the topics, and of what the windows do not cover."""
    blocks: list[str] = []
    for flow in flows:
        blocks += flow.facts.blocks
        blocks += find_partitions_without_source(flow.facts)
        blocks += find_deleted_topics(flow.facts, topics_named)
    return blocks + [found for flow in flows for found in find_partitions_not_begun(flow.facts, flow.observed)]


def _compare(
    run: _ProofRun,
    partitions: Sequence[ProofPartition],
    readers: ProofReaders,
    blocks: Sequence[str],
    outside: dict[PartitionPair, Counts],
) -> ComparisonOutcome:
    again = sum(len(partition.again) for partition in partitions)
    run.summary["recheck"] = {"run": run.earlier.run + 1, "chunks": again}
    named = MAX_DIFFERENCE_EXAMPLES if run.level == "L1" else run.request.max_diffs
    producers_wait = run.request.final and run.request.since is not None
    return compare_and_judge(partitions, readers, blocks=blocks, outside=outside, named=named, hasty=producers_wait)


def _add_fence_state(run: _ProofRun, flows: Sequence[_FlowObservation], judgement: ProofJudgement) -> ProofJudgement:
    """Of a final proof: what was written at the source behind the fence."""
    if judgement.errors:
        return judgement
    for flow in flows:
        if flow.facts.flow.end is not None:  # what is written behind the end of a copy is no straggler
            continue
        admin, settings = run.clusters.open(flow.facts.flow.source)
        judgement = add_fence_findings(
            judgement,
            flow.partitions,
            flow.observed,
            admin.offsets,
            lambda partition, span: count_range_records(run.plan, partition.build_request(0, span, 0)),
            partial(describe_open_transactions, settings),
        )
    return judgement


def _add_position_results(
    run: _ProofRun, flows: Sequence[_FlowObservation], judgement: ProofJudgement
) -> tuple[ProofJudgement, list[LandedPosition]]:
    """Level L3: tries the translated positions of consumer groups."""
    landed: list[LandedPosition] = []
    for flow in flows:
        positions, problems = flow.positions
        judgement = replace(judgement, blocks=(*judgement.blocks, *problems))
        if positions and not judgement.errors:
            with open_small_range_reader(run.plan, flow.partitions, run.session) as read:
                landed += run_landing_tests(flow.facts.flow, positions, flow.observed, read, flow.reread_positions)
    if landed:
        run.say(f"tried {len(landed)} positions of groups")
        judgement = add_group_findings(judgement, landed)
    return judgement, landed


def render_iso_timestamp(seconds: float) -> str:
    """UTC with milliseconds, as in `summary.json`. seconds: since 1970."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
