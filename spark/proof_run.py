"""One proof, from the plan and both clusters to the evidence."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusters.admin import Admin
from clusters.flow_records import StartPosition
from clusters.settings import ConnectionSettings, resolve_connection_settings
from clusters.topic_partition import TopicPartition
from replicator.copy.quarantine import QuarantinedRecord
from spark.errors import WrongUse
from spark.evidence.evidence_folder import write_evidence_folder
from spark.evidence.proof_results import ProofFindings, build_results, build_run_id, choose_default_level
from spark.judging.coverage_warnings import describe_flows_left_out, find_deleted_topics, find_partitions_without_source
from spark.judging.earlier_proof import (
    EarlierProof,
    merge_neighbour_chunks,
    read_earlier_proof,
    select_rechecked_chunks,
)
from spark.judging.fence_checks import add_fence_findings, describe_open_transactions
from spark.judging.flow_observation import (
    AlignmentReader,
    FlowFacts,
    observe_partitions,
    read_flow_facts,
    read_ledger_alignment,
)
from spark.judging.group_positions import GroupSelection, add_group_findings, read_group_positions, run_landing_tests
from spark.judging.partition_sizes import read_partition_bytes
from spark.judging.position_landing import LandedPosition
from spark.judging.proof_window import ObservedPartition, PartitionPair, choose_chunk_offsets, fix_window
from spark.judging.quarantine_side import build_quarantine_facts, build_quarantined_offsets, read_quarantined_records
from spark.judging.record_difference import MAX_DIFFERENCE_EXAMPLES
from spark.judging.record_ownership import describe_application_records, read_own_producer_ids
from spark.judging.source_truncation import exclude_truncated_ends
from spark.judging.verdict import Counts, ProofJudgement
from spark.proof_request import ProofRequest
from spark.reading.schema_id_pairs import NO_ID_REWRITE, KeyValueIdPairs
from spark.reading.schema_id_rewrite import read_schema_id_pairs
from spark.session import create_spark_session, end_session
from topology.plan import Plan, PlanFlow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.judging.proof_inputs import ProofPartition


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

    Raises SparkError, ClusterError, ReplicatorError when no proof can be made.
    """
    began = time.time()
    facts: dict[str, Any] = {
        "topology": plan.topology,
        "plan_hash": plan.hash,
        "run_id": build_run_id(began),
        "level": request.level,
        "mode": request.mode,
        "started_at": render_iso_timestamp(began),
    }
    flows = _flows(plan, request)
    facts["flows"] = [flow.id for flow in flows]
    facts["level"] = level = request.level or ("L2" if request.foreign else choose_default_level(flows, request.groups))
    earlier = read_earlier_proof(request.since) if request.since else EarlierProof()
    with ExitStack() as stack:
        admins: dict[str, Admin] = {}

        def connected(alias: str) -> tuple[Admin, ConnectionSettings]:
            settings = resolve_connection_settings(plan.cluster(alias))
            if alias not in admins:
                admins[alias] = stack.enter_context(Admin(settings))
                admins[alias].check_identity()
            return admins[alias], settings

        known: list[FlowFacts] = []
        for flow in flows:
            source, target = connected(flow.source), connected(flow.target)
            only = [topic for topic in request.topics if len(flows) == 1 or flow.selects(topic)]
            known.append(
                read_flow_facts(flow, source[0], target[0], (source[1], target[1]), only or None, request.foreign)
            )
        _topics_found(request.topics, known)
        if level == "L0":
            blocks = [block for flow_known in known for block in flow_known.blocks]
            blocks.append("level L0 looks at the topics only; no record was compared, so nothing is proven")
            judgement = ProofJudgement({}, tuple(blocks))
            notes = _notes(known, "records (level L0)", "consumer groups (level L0)")
            return _finish(ProofFindings(judgement), facts, notes, out, request, began)

        if request.foreign and level == "L3":
            raise WrongUse("level L3 tries groups' positions by the flow's own ledger; a foreign copy has none: use L2")
        from spark.foreign.aborted_records import find_copied_aborted_records
        from spark.foreign.inferred_alignment import build_spark_sampler, observe_foreign_copy
        from spark.foreign.mirrormaker_hints import build_hint_reader
        from spark.judging.proof import compare_and_judge
        from spark.progress import build_progress_printer
        from spark.proof_jobs import build_spark_readers, count_range_records, open_small_range_reader
        from spark.reading.range_requests import RangeRequest
        from spark.reading.read_limits import build_read_limits

        def nothing_left(flow_known: FlowFacts, seen: ObservedPartition) -> bool:
            position = seen.map.source_position(seen.target.end)
            unit = RangeRequest(
                0, flow_known.flow.source, seen.place.topic, str(seen.ids[0]), seen.place.partition, 0, 0
            )
            claims = flow_known.claims_of(seen.place.topic, seen.ids[0], seen.place.partition)
            unit = replace(unit, start=position, end=seen.barrier, skip=flow_known.skip, claims=claims)
            return count_range_records(plan, unit) == 0

        asked = GroupSelection.of(flows, request.groups) if level == "L3" else GroupSelection()
        # before the window is fixed: what groups have read by now lies in it
        looks = {
            k.flow.id: partial(read_group_positions, asked, k.flow, connected, {pair.source.name for pair in k.pairs})
            for k in known
        }
        standing = {flow: look() for flow, look in looks.items()}
        asked.check(standing)
        subjects: list[ProofPartition] = []
        observed: list[tuple[FlowFacts, list[ObservedPartition]]] = []
        outside: dict[PartitionPair, Counts] = {}
        manners = build_read_limits(plan, flows, request.max_rate)
        for flow_known in known:
            if request.foreign:
                look = build_spark_sampler(plan, session or (lambda: _own_session(stack)), manners)
                kept = build_hint_reader(connected(flow_known.flow.source)[1], flow_known)
                seen = observe_foreign_copy(
                    flow_known, look, wait=request.wait, earliest=request.from_start, hints=kept
                )
            else:
                settled = partial(nothing_left, flow_known)
                seen = observe_partitions(flow_known, alignment, wait=request.wait, settled=settled)
                ours = partial(read_own_producer_ids, flow_known.flow, flow_known.target_settings)
                seen = exclude_truncated_ends(flow_known, seen, ours, partial(count_range_records, plan))
            observed.append((flow_known, seen))
            # behind the barrier: whatever was copied below it had its schema at the target before
            settings = connected(flow_known.flow.source)[1], flow_known.target_settings
            named_topics = [] if request.foreign else [pair.source.name for pair in flow_known.pairs]
            ids = read_schema_id_pairs(flow_known.flow, *settings, named_topics)
            kept = {} if request.foreign else read_quarantined_records(flow_known.target_settings, flow_known.flow)
            subjects += _subjects(flow_known, seen, request, earlier, ids, settings[0], kept)
            outside |= _without_copy(flow_known) | flow_known.unusable
        facts["fixed_at"] = render_iso_timestamp(time.time())
        say(f"window fixed: {len(subjects)} partitions of {len(flows)} flows")
        readers = build_spark_readers(
            session or (lambda: _own_session(stack)), plan, build_progress_printer(say), manners, say
        )
        for flow_known in known:
            flow_known.blocks += find_partitions_without_source(flow_known) + find_deleted_topics(
                flow_known, bool(request.topics)
            )
        blocks = [block for flow_known in known for block in flow_known.blocks] + _not_begun(observed)
        if not subjects and not outside:
            blocks.append("there was nothing to compare: no running flow selects a topic that exists")
        again = sum(len(subject.again) for subject in subjects)
        facts["recheck"] = {"run": earlier.run + 1, "chunks": again}
        named = MAX_DIFFERENCE_EXAMPLES if level == "L1" else request.max_diffs
        after_proof = request.final and request.since is not None  # nobody writes until it is done
        proof = compare_and_judge(subjects, readers, blocks=blocks, outside=outside, named=named, hasty=after_proof)
        judgement = replace(proof.judgement, allow_quarantined=request.allow_quarantined)
        facts["quarantine"] = build_quarantine_facts(subjects, proof.confirmed)
        for flow_known in known:
            if flow_known.only and not judgement.errors:
                here = [subject for subject in subjects if subject.window.place.flow == flow_known.flow.id]
                flow_known.notes += describe_application_records(here, flow_known.writers, readers)
        if request.foreign:
            more = find_copied_aborted_records(plan, subjects, proof.confirmed)
            judgement = replace(judgement, blocks=(*judgement.blocks, *more))
        if request.final and not judgement.errors:
            for flow_known, seen in observed:
                here = [subject for subject in subjects if subject.window.place.flow == flow_known.flow.id]
                there = connected(flow_known.flow.source)
                judgement = add_fence_findings(
                    judgement,
                    here,
                    seen,
                    there[0].offsets,
                    lambda subject, span: count_range_records(plan, subject.unit(0, span, 0)),
                    partial(describe_open_transactions, there[1]),
                )
        say(f"compared {len(proof.rows)} chunks")
        groups: list[LandedPosition] = []
        for flow_known, seen in observed:
            positions, problems = standing[flow_known.flow.id]
            judgement = replace(judgement, blocks=(*judgement.blocks, *problems))
            if positions and not judgement.errors:
                here = [subject for subject in subjects if subject.window.place.flow == flow_known.flow.id]
                with open_small_range_reader(plan, here) as read:
                    groups += run_landing_tests(flow_known.flow, positions, seen, read, looks[flow_known.flow.id])
        if groups:
            say(f"tried {len(groups)} positions of groups")
            judgement = add_group_findings(judgement, groups)
        if subjects:
            facts |= _engine(session)
        windows = [subject.window for subject in subjects]
        facts["alignments"] = {(k.flow.id, topic): how for k in known for topic, how in k.alignments.items()}
        notes = _notes(known, *asked.left_out(flows), *describe_flows_left_out(plan.flows, flows, bool(request.flows)))
        return _finish(
            ProofFindings(judgement, proof.rows, proof.confirmed, windows, groups), facts, notes, out, request, began
        )


def _own_session(stack: ExitStack) -> SparkSession:
    """A session that ends with the proof."""
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession()
    if there is None:
        there = create_spark_session("watershed-verify")
        stack.callback(end_session, there)
    return there


def _engine(session: Callable[[], SparkSession] | None) -> dict[str, Any]:
    """Of the session that has read, if anything was."""
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession() if session is None else session()
    return {} if there is None else {"engine": f"spark {there.sparkContext.master}", "spark_version": there.version}


def _finish(
    found: ProofFindings, facts: dict[str, Any], notes: Sequence[str], out: Path, request: ProofRequest, began: float
) -> dict[str, Any]:
    facts |= {
        "ended_at": render_iso_timestamp(time.time()),
        "seconds": round(time.time() - began, 1),
        "policy": request.to_json(),
    }
    document, tables = build_results(found, facts, notes)
    write_evidence_folder(out, document, tables)
    return document


def _flows(plan: Plan, request: ProofRequest) -> list[PlanFlow]:
    if request.from_start and not request.foreign:
        raise WrongUse("--from-start is for --foreign copies; for a flow of ours its `start` in the file counts")
    wanted = list(request.flows)
    there = {flow.id: flow for flow in plan.flows}
    for id_ in wanted:
        if id_ not in there:
            raise WrongUse(f"topology {plan.topology} has no flow {id_}; it has {', '.join(there) or 'none'}")
    return (
        [there[id_] for id_ in wanted]
        if wanted
        else [flow for flow in plan.flows if request.foreign or flow.state == "running"]
    )


def _topics_found(topics: Sequence[str], known: Sequence[FlowFacts]) -> None:
    for topic in topics:
        if not any(k.flow.selects(topic) for k in known):
            raise WrongUse(f"no flow selects topic {topic} ({', '.join(k.flow.id for k in known)})")


def _subjects(
    known: FlowFacts,
    seen: Sequence[ObservedPartition],
    request: ProofRequest,
    earlier: EarlierProof,
    ids: dict[str, KeyValueIdPairs],
    source: ConnectionSettings,
    kept: Mapping[tuple[str, int], Sequence[QuarantinedRecord]],
) -> list[ProofPartition]:
    from spark.foreign.inferred_alignment import choose_window_start
    from spark.judging.proof_inputs import ProofPartition

    pairs = {pair.source.name: pair for pair in known.pairs}
    sizes = read_partition_bytes(source, pairs) if request.chunk is None else {}
    share = known.flow.verify.recheck if request.recheck is None else request.recheck
    if request.final and request.since is not None and request.recheck is None:
        share = 0.0  # a share of a large history would take longer than all that came since, while nobody writes
    found = []
    for o in seen:
        before, proven = earlier.of(o)
        begin = known.begins.get(o.place.topic, {}).get(o.place.partition)
        start: StartPosition = choose_window_start(o) if known.foreign else known.flow.start if begin is None else begin
        window = fix_window(o, start=start, final=request.final, earlier=before)
        window = replace(window, unverifiable=window.unverifiable + known.lost.get(o.place, 0))
        size = sizes.get(TopicPartition(o.place.topic, o.place.partition))
        chunk = request.chunk or choose_chunk_offsets(size, o.source.end - o.source.start)
        aligned = known.flow.offsets == "aligned" and not known.foreign
        in_place = aligned and all(run.source == run.target for run in o.map.runs)
        proven = merge_neighbour_chunks(proven, chunk, in_place=in_place)
        pair = pairs[o.place.topic]
        subject = ProofPartition(
            window,
            o.map,
            (known.flow.source, known.flow.target),
            compacted=pair.compacted,
            only_copy_compacts=pair.only_copy_compacts,
            timestamps=pair.timestamps,
            skip=known.skip,
            only=known.only,
            claims=known.claims_of(o.place.topic, o.ids[0], o.place.partition),
            ids=ids.get(o.place.topic, NO_ID_REWRITE),
            in_place=in_place,
            chunk=chunk,
            earlier=proven,
            again=select_rechecked_chunks(proven, earlier.run, share),
            kept=build_quarantined_offsets(
                kept.get((o.place.topic, o.place.partition), ()),
                timestamps=pair.timestamps,
                ids=ids.get(o.place.topic, NO_ID_REWRITE),
            ),
        )
        found.append(subject)
    return found


def _without_copy(known: FlowFacts) -> dict[PartitionPair, Counts]:
    """Partitions of the source that have no counterpart: everything in them is pending (counted by offsets)."""
    flow, pairs = known.flow, {pair.source.name: pair for pair in known.pairs}
    lonely = [
        TopicPartition(topic.name, number)
        for topic in known.selected
        for number in range(pairs[topic.name].target.partitions if topic.name in pairs else 0, topic.partitions)
    ]
    logs = known.source.offsets(lonely) if lonely else {}
    return {
        PartitionPair(flow.id, key.topic, flow.target_topic(key.topic), key.partition): Counts(
            pending=log.end - log.start
        )
        for key, log in logs.items()
    }


def _not_begun(observed: Sequence[tuple[FlowFacts, list[ObservedPartition]]]) -> list[str]:
    """A flow with `start: latest` has no window before a worker has begun; that is not the same as an empty one."""
    return [
        f"{o.place.topic}-{o.place.partition}: no worker has begun this partition"
        for known, seen in observed
        for o in seen
        if known.flow.start == "latest" and not known.foreign and not o.map.runs and o.source.end > 0
    ]


def _notes(known: Sequence[FlowFacts], *more: str) -> list[str]:
    return [note for flow_known in known for note in flow_known.notes] + list(more)


def render_iso_timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
