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
from clusters.flows import Start
from clusters.names import TopicPartition
from clusters.settings import ConnectionSettings, connection_settings
from replicator.quarantine import Quarantined
from spark.errors import WrongUse
from spark.evidence.folder import write_evidence
from spark.evidence.report import Found, default_level, results, run_id
from spark.judging.difference import EXAMPLES
from spark.judging.earlier import EarlierProof, merged, read_earlier, recheck
from spark.judging.final import after_fence, open_transactions
from spark.judging.groups import Asked, landing_tests, positions_now, with_groups
from spark.judging.kept import as_kept, kept_records, quarantine_facts
from spark.judging.landing import Landed
from spark.judging.observe import Alignment, FlowFacts, flow_facts, ledger_alignment, observe
from spark.judging.passed_over import flows_left_out, partitions_without_source, topics_gone
from spark.judging.sizes import partition_bytes
from spark.judging.truncated import without_lost_ends
from spark.judging.verdict import Counts, Judgement
from spark.judging.whose import ids_of, of_applications
from spark.judging.window import Observed, Place, chunk_offsets, fix_window
from spark.reading.ids import AS_THEY_ARE, Ids
from spark.reading.schema_ids import translated_ids
from spark.request import Request
from spark.session import end_session, spark_session
from topology.plan import Plan, PlanFlow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.judging.proof import Subject


def verify(
    plan: Plan,
    request: Request,
    out: Path,
    *,
    alignment: Alignment = ledger_alignment,
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
        "run_id": run_id(began),
        "level": request.level,
        "mode": request.mode,
        "started_at": iso(began),
    }
    flows = _flows(plan, request)
    facts["flows"] = [flow.id for flow in flows]
    facts["level"] = level = request.level or ("L2" if request.foreign else default_level(flows, request.groups))
    earlier = read_earlier(request.since) if request.since else EarlierProof()
    with ExitStack() as stack:
        admins: dict[str, Admin] = {}

        def connected(alias: str) -> tuple[Admin, ConnectionSettings]:
            settings = connection_settings(plan.cluster(alias))
            if alias not in admins:
                admins[alias] = stack.enter_context(Admin(settings))
                admins[alias].check_identity()
            return admins[alias], settings

        known: list[FlowFacts] = []
        for flow in flows:
            source, target = connected(flow.source), connected(flow.target)
            only = [topic for topic in request.topics if len(flows) == 1 or flow.selects(topic)]
            known.append(flow_facts(flow, source[0], target[0], (source[1], target[1]), only or None, request.foreign))
        _topics_found(request.topics, known)
        if level == "L0":
            blocks = [block for flow_known in known for block in flow_known.blocks]
            blocks.append("level L0 looks at the topics only; no record was compared, so nothing is proven")
            judgement = Judgement({}, tuple(blocks))
            notes = _notes(known, "records (level L0)", "consumer groups (level L0)")
            return _finish(Found(judgement), facts, notes, out, request, began)

        if request.foreign and level == "L3":
            raise WrongUse("level L3 tries groups' positions by the flow's own ledger; a foreign copy has none: use L2")
        from spark.engine import reader_of, records_in, spark_readers
        from spark.foreign.aborted import copied_though_aborted
        from spark.foreign.hints import noted_syncs
        from spark.foreign.inferred import observe_foreign, spark_look
        from spark.judging.proof import prove
        from spark.progress import spoken
        from spark.reading.manners import manners_of
        from spark.reading.units import Unit

        def nothing_left(flow_known: FlowFacts, seen: Observed) -> bool:
            position = seen.map.source_position(seen.target.end)
            unit = Unit(0, flow_known.flow.source, seen.place.topic, str(seen.ids[0]), seen.place.partition, 0, 0)
            claims = flow_known.claims_of(seen.place.topic, seen.ids[0], seen.place.partition)
            unit = replace(unit, start=position, end=seen.barrier, skip=flow_known.skip, claims=claims)
            return records_in(plan, unit) == 0

        asked = Asked.of(flows, request.groups) if level == "L3" else Asked()
        # before the window is fixed: what groups have read by now lies in it
        looks = {
            k.flow.id: partial(positions_now, asked, k.flow, connected, {pair.source.name for pair in k.pairs})
            for k in known
        }
        standing = {flow: look() for flow, look in looks.items()}
        asked.check(standing)
        subjects: list[Subject] = []
        observed: list[tuple[FlowFacts, list[Observed]]] = []
        outside: dict[Place, Counts] = {}
        manners = manners_of(plan, flows, request.max_rate)
        for flow_known in known:
            if request.foreign:
                look = spark_look(plan, session or (lambda: _own_session(stack)), manners)
                kept = noted_syncs(connected(flow_known.flow.source)[1], flow_known)
                seen = observe_foreign(flow_known, look, wait=request.wait, earliest=request.from_start, hints=kept)
            else:
                settled = partial(nothing_left, flow_known)
                seen = observe(flow_known, alignment, wait=request.wait, settled=settled)
                ours = partial(ids_of, flow_known.flow, flow_known.target_settings)
                seen = without_lost_ends(flow_known, seen, ours, partial(records_in, plan))
            observed.append((flow_known, seen))
            # behind the barrier: whatever was copied below it had its schema at the target before
            settings = connected(flow_known.flow.source)[1], flow_known.target_settings
            named_topics = [] if request.foreign else [pair.source.name for pair in flow_known.pairs]
            ids = translated_ids(flow_known.flow, *settings, named_topics)
            kept = {} if request.foreign else kept_records(flow_known.target_settings, flow_known.flow)
            subjects += _subjects(flow_known, seen, request, earlier, ids, settings[0], kept)
            outside |= _without_copy(flow_known) | flow_known.unusable
        facts["fixed_at"] = iso(time.time())
        say(f"window fixed: {len(subjects)} partitions of {len(flows)} flows")
        readers = spark_readers(session or (lambda: _own_session(stack)), plan, spoken(say), manners, say)
        for flow_known in known:
            flow_known.blocks += partitions_without_source(flow_known) + topics_gone(flow_known, bool(request.topics))
        blocks = [block for flow_known in known for block in flow_known.blocks] + _not_begun(observed)
        if not subjects and not outside:
            blocks.append("there was nothing to compare: no running flow selects a topic that exists")
        again = sum(len(subject.again) for subject in subjects)
        facts["recheck"] = {"run": earlier.run + 1, "chunks": again}
        named = EXAMPLES if level == "L1" else request.max_diffs
        after_proof = request.final and request.since is not None  # nobody writes until it is done
        proof = prove(subjects, readers, blocks=blocks, outside=outside, named=named, hasty=after_proof)
        judgement = replace(proof.judgement, allow_quarantined=request.allow_quarantined)
        facts["quarantine"] = quarantine_facts(subjects, proof.confirmed)
        for flow_known in known:
            if flow_known.only and not judgement.errors:
                here = [subject for subject in subjects if subject.window.place.flow == flow_known.flow.id]
                flow_known.notes += of_applications(here, flow_known.writers, readers)
        if request.foreign:
            more = copied_though_aborted(plan, subjects, proof.confirmed)
            judgement = replace(judgement, blocks=(*judgement.blocks, *more))
        if request.final and not judgement.errors:
            for flow_known, seen in observed:
                here = [subject for subject in subjects if subject.window.place.flow == flow_known.flow.id]
                there = connected(flow_known.flow.source)
                judgement = after_fence(
                    judgement,
                    here,
                    seen,
                    there[0].offsets,
                    lambda subject, span: records_in(plan, subject.unit(0, span, 0)),
                    partial(open_transactions, there[1]),
                )
        say(f"compared {len(proof.rows)} chunks")
        groups: list[Landed] = []
        for flow_known, seen in observed:
            positions, problems = standing[flow_known.flow.id]
            judgement = replace(judgement, blocks=(*judgement.blocks, *problems))
            if positions and not judgement.errors:
                here = [subject for subject in subjects if subject.window.place.flow == flow_known.flow.id]
                with reader_of(plan, here) as read:
                    groups += landing_tests(flow_known.flow, positions, seen, read, looks[flow_known.flow.id])
        if groups:
            say(f"tried {len(groups)} positions of groups")
            judgement = with_groups(judgement, groups)
        if subjects:
            facts |= _engine(session)
        windows = [subject.window for subject in subjects]
        facts["alignments"] = {(k.flow.id, topic): how for k in known for topic, how in k.alignments.items()}
        notes = _notes(known, *asked.left_out(flows), *flows_left_out(plan.flows, flows, bool(request.flows)))
        return _finish(
            Found(judgement, proof.rows, proof.confirmed, windows, groups), facts, notes, out, request, began
        )


def _own_session(stack: ExitStack) -> SparkSession:
    """A session that ends with the proof."""
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession()
    if there is None:
        there = spark_session("watershed-verify")
        stack.callback(end_session, there)
    return there


def _engine(session: Callable[[], SparkSession] | None) -> dict[str, Any]:
    """Of the session that has read, if anything was."""
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession() if session is None else session()
    return {} if there is None else {"engine": f"spark {there.sparkContext.master}", "spark_version": there.version}


def _finish(
    found: Found, facts: dict[str, Any], notes: Sequence[str], out: Path, request: Request, began: float
) -> dict[str, Any]:
    facts |= {"ended_at": iso(time.time()), "seconds": round(time.time() - began, 1), "policy": request.to_json()}
    document, tables = results(found, facts, notes)
    write_evidence(out, document, tables)
    return document


def _flows(plan: Plan, request: Request) -> list[PlanFlow]:
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
    seen: Sequence[Observed],
    request: Request,
    earlier: EarlierProof,
    ids: dict[str, Ids],
    source: ConnectionSettings,
    kept: Mapping[tuple[str, int], Sequence[Quarantined]],
) -> list[Subject]:
    from spark.foreign.inferred import start_of
    from spark.judging.proof import Subject

    pairs = {pair.source.name: pair for pair in known.pairs}
    sizes = partition_bytes(source, pairs) if request.chunk is None else {}
    share = known.flow.verify.recheck if request.recheck is None else request.recheck
    if request.final and request.since is not None and request.recheck is None:
        share = 0.0  # a share of a large history would take longer than all that came since, while nobody writes
    found = []
    for o in seen:
        before, proven = earlier.of(o)
        begin = known.begins.get(o.place.topic, {}).get(o.place.partition)
        start: Start = start_of(o) if known.foreign else known.flow.start if begin is None else begin
        window = fix_window(o, start=start, final=request.final, earlier=before)
        window = replace(window, unverifiable=window.unverifiable + known.lost.get(o.place, 0))
        size = sizes.get(TopicPartition(o.place.topic, o.place.partition))
        chunk = request.chunk or chunk_offsets(size, o.source.end - o.source.start)
        aligned = known.flow.offsets == "aligned" and not known.foreign
        in_place = aligned and all(run.source == run.target for run in o.map.runs)
        proven = merged(proven, chunk, in_place=in_place)
        pair = pairs[o.place.topic]
        subject = Subject(
            window,
            o.map,
            (known.flow.source, known.flow.target),
            compacted=pair.compacted,
            only_copy_compacts=pair.only_copy_compacts,
            timestamps=pair.timestamps,
            skip=known.skip,
            only=known.only,
            claims=known.claims_of(o.place.topic, o.ids[0], o.place.partition),
            ids=ids.get(o.place.topic, AS_THEY_ARE),
            in_place=in_place,
            chunk=chunk,
            earlier=proven,
            again=recheck(proven, earlier.run, share),
            kept=as_kept(
                kept.get((o.place.topic, o.place.partition), ()),
                timestamps=pair.timestamps,
                ids=ids.get(o.place.topic, AS_THEY_ARE),
            ),
        )
        found.append(subject)
    return found


def _without_copy(known: FlowFacts) -> dict[Place, Counts]:
    """Partitions of the source that have no counterpart: everything in them is pending (counted by offsets)."""
    flow, pairs = known.flow, {pair.source.name: pair for pair in known.pairs}
    lonely = [
        TopicPartition(topic.name, number)
        for topic in known.selected
        for number in range(pairs[topic.name].target.partitions if topic.name in pairs else 0, topic.partitions)
    ]
    logs = known.source.offsets(lonely) if lonely else {}
    return {
        Place(flow.id, key.topic, flow.target_topic(key.topic), key.partition): Counts(pending=log.end - log.start)
        for key, log in logs.items()
    }


def _not_begun(observed: Sequence[tuple[FlowFacts, list[Observed]]]) -> list[str]:
    """A flow with `start: latest` has no window before a worker has begun; that is not the same as an empty one."""
    return [
        f"{o.place.topic}-{o.place.partition}: no worker has begun this partition"
        for known, seen in observed
        for o in seen
        if known.flow.start == "latest" and not known.foreign and not o.map.runs and o.source.end > 0
    ]


def _notes(known: Sequence[FlowFacts], *more: str) -> list[str]:
    return [note for flow_known in known for note in flow_known.notes] + list(more)


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
