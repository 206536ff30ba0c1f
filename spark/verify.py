"""The proof as an application: `python -m spark.verify --topology PATH --out DIR [...]`.

Exit codes: 0 proven, 1 different, 2 error (wrong use, unreachable, no ledger), 3 incomplete. `DIR/summary.json` says
the same and more, also for 2. Diagnostics go to stderr, the verdict to stdout.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusters.admin import Admin
from clusters.errors import ClusterError
from clusters.settings import ConnectionSettings, connection_settings
from replicator.errors import ReplicatorError
from spark.errors import SparkError, WrongUse
from spark.observe import Alignment, FlowFacts, flow_facts, ledger_alignment, observe
from spark.report import error_summary, read_earlier, summary, with_counts, write_chunks, write_summary
from spark.session import end_session, find_java, spark_session
from spark.verdict import EXIT_CODES, Counts, Judgement
from spark.window import Earlier, Observed, Place, fix_window
from topology.errors import TopologyError
from topology.plan import Plan, PlanFlow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.proof import Subject


@dataclass(frozen=True, slots=True)
class Request:
    """What to prove. `wait` in seconds, `chunk` in source offsets.

    Empty `flows` means all that the plan does not declare paused, empty `topics` means all of theirs.
    """

    flows: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    level: str = "L1"
    final: bool = False
    since: Path | None = None
    wait: float = 30.0
    chunk: int = 50_000


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
        "level": request.level,
        "mode": "final" if request.final else "rolling",
        "started_at": _iso(began),
    }
    flows = _flows(plan, request.flows)
    facts["flows"] = [flow.id for flow in flows]
    earlier = read_earlier(request.since) if request.since else {}
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
            known.append(flow_facts(flow, source[0], target[0], (source[1], target[1]), only or None))
        _topics_found(request.topics, known)
        if request.level == "L0":
            blocks = [block for flow_known in known for block in flow_known.blocks]
            blocks.append("level L0 looks at the topics only; no record was compared, so nothing is proven")
            judgement = Judgement({}, tuple(blocks))
            document = summary(judgement, (), (), (), facts=facts, not_compared=_notes(known, "records (level L0)"))
            return _finish(document, out, began)

        from spark.engine import records_in, spark_readers
        from spark.proof import prove
        from spark.source import Unit

        def nothing_left(flow_known: FlowFacts, seen: Observed) -> bool:
            position = seen.map.source_position(seen.target.end)
            unit = Unit(0, flow_known.flow.source, seen.place.topic, str(seen.ids[0]), seen.place.partition, 0, 0)
            unit = _moved(unit, position, seen.barrier, flow_known.skip)
            return records_in(plan, unit) == 0

        subjects: list[Subject] = []
        observed: list[tuple[FlowFacts, list[Observed]]] = []
        outside: dict[Place, Counts] = {}
        for flow_known in known:
            seen = observe(flow_known, alignment, wait=request.wait, settled=lambda o, k=flow_known: nothing_left(k, o))
            observed.append((flow_known, seen))
            subjects += _subjects(flow_known, seen, request, earlier)
            outside |= _without_copy(flow_known)
        facts["fixed_at"] = _iso(time.time())
        say(f"window fixed: {len(subjects)} partitions of {len(flows)} flows")
        readers = spark_readers(session or (lambda: _own_session(stack)), plan, out / "work")
        blocks = [block for flow_known in known for block in flow_known.blocks] + _not_begun(observed)
        if not subjects and not outside:
            blocks.append("there was nothing to compare: no running flow selects a topic that exists")
        proof = prove(subjects, readers, chunk=request.chunk, blocks=blocks, outside=outside)
        judgement = proof.judgement
        if request.final and not judgement.errors:
            judgement = _still(judgement, observed)
        say(f"compared {len(proof.rows)} chunks")
        windows = [subject.window for subject in subjects]
        notes = _notes(known, "consumer groups (level L3)")
        document = summary(judgement, proof.rows, proof.confirmed, windows, facts=facts, not_compared=notes)
        write_chunks(out, proof.rows)
        return _finish(with_counts(document, judgement), out, began)


def main(arguments: Sequence[str] | None = None) -> int:
    from topology import compile_path

    options = _parser().parse_args(arguments)
    out: Path = options.out
    facts = {"level": options.level, "mode": "final" if options.final else "rolling", "started_at": _iso(time.time())}
    try:
        out.mkdir(parents=True, exist_ok=True)
        _make_room(out, options.since)
    except (OSError, WrongUse) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CODES["error"]
    try:
        if options.level != "L0":
            find_java()
        plan = compile_path(options.topology)
        request = Request(
            tuple(options.flow),
            tuple(name for names in options.topics for name in names.split(",") if name),
            options.level,
            options.final,
            options.since,
            options.wait,
            options.chunk,
        )
        document = verify(plan, request, out, say=lambda line: print(line, file=sys.stderr, flush=True))
    except (SparkError, ClusterError, ReplicatorError, TopologyError) as error:
        return _failed(out, str(error), facts)
    if "error" in document:
        print(f"error: {document['error']}", file=sys.stderr)
    print(f"{document['verdict']}: {document['unproven']} unproven, {document['proven']} proven, "
          f"{document['pending']} pending")  # fmt: skip
    return int(document["exit_code"])


def _own_session(stack: ExitStack) -> SparkSession:
    """A session that ends with the proof."""
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession()
    if there is None:
        there = spark_session("watershed-verify")
        stack.callback(end_session, there)
    return there


def _make_room(out: Path, since: Path | None) -> None:
    """An old verdict must not be taken for ours, should we die."""
    old = out / "summary.json"
    if since is not None and old.exists() and since.exists() and old.samefile(since):
        raise WrongUse(f"--since {since} would be overwritten by this proof; choose another --out")
    old.unlink(missing_ok=True)


def _failed(out: Path, message: str, facts: dict[str, Any]) -> int:
    print(f"error: {message}", file=sys.stderr)
    if out.is_dir():
        write_summary(out, error_summary(message, facts))
    return EXIT_CODES["error"]


def _finish(document: dict[str, Any], out: Path, began: float) -> dict[str, Any]:
    document["ended_at"], document["seconds"] = _iso(time.time()), round(time.time() - began, 1)
    write_summary(out, document)
    return document


def _flows(plan: Plan, ids: Iterable[str]) -> list[PlanFlow]:
    wanted = list(ids)
    there = {flow.id: flow for flow in plan.flows}
    for id_ in wanted:
        if id_ not in there:
            raise WrongUse(f"topology {plan.topology} has no flow {id_}; it has {', '.join(there) or 'none'}")
    return [there[id_] for id_ in wanted] if wanted else [flow for flow in plan.flows if flow.state == "running"]


def _topics_found(topics: Sequence[str], known: Sequence[FlowFacts]) -> None:
    for topic in topics:
        if not any(k.flow.selects(topic) for k in known):
            raise WrongUse(f"no flow selects topic {topic} ({', '.join(k.flow.id for k in known)})")


def _subjects(
    known: FlowFacts, seen: Sequence[Observed], request: Request, earlier: dict[Any, Earlier]
) -> list[Subject]:
    from spark.proof import Subject

    pairs = {pair.source.name: pair for pair in known.pairs}
    found = []
    for o in seen:
        before = earlier.get((o.place, (str(o.ids[0]), str(o.ids[1]))))
        window = fix_window(o, start=known.flow.start, final=request.final, earlier=before)
        pair = pairs[o.place.topic]
        clusters = (known.flow.source, known.flow.target)
        found.append(Subject(window, o.map, clusters, pair.compacted, pair.timestamps, known.skip))
    return found


def _without_copy(known: FlowFacts) -> dict[Place, Counts]:
    """Partitions of the source that have no counterpart: everything in them is pending (counted by offsets)."""
    from clusters.names import TopicPartition

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
        if known.flow.start == "latest" and not o.map.runs and o.source.end > 0
    ]


def _still(judgement: Judgement, observed: Sequence[tuple[FlowFacts, list[Observed]]]) -> Judgement:
    """After a fence nothing may move: records written since the window was fixed are pending (stragglers)."""
    from dataclasses import replace

    from clusters.names import TopicPartition

    counts, blocks = dict(judgement.partitions), list(judgement.blocks)
    for known, seen in observed:
        keys = {TopicPartition(o.place.topic, o.place.partition): o for o in seen}
        whole = known.source.offsets(keys, "read_uncommitted") if keys else {}
        for key, log in known.source.offsets(keys).items() if keys else ():
            if whole[key].end > log.end:
                held = f"offsets {log.end} to {whole[key].end - 1}"
                blocks.append(f"{key.topic}-{key.partition}: an open transaction holds {held}")
            o = keys[key]
            if log.end > o.barrier:
                late = log.end - o.barrier
                blocks.append(f"{key.topic}-{key.partition}: {late} offsets written after the window was fixed")
                before = counts.get(o.place, Counts())
                counts[o.place] = before + Counts(pending=late)
    return replace(judgement, partitions=counts, blocks=tuple(blocks))


def _notes(known: Sequence[FlowFacts], always: str) -> list[str]:
    return [note for flow_known in known for note in flow_known.notes] + [always]


def _moved(unit: Any, start: int, end: int, skip: tuple[int, ...]) -> Any:
    from dataclasses import replace

    return replace(unit, start=start, end=end, skip=skip)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m spark.verify", description=__doc__.split("\n")[0])
    parser.add_argument("--topology", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--flow", action="append", default=[], metavar="ID")
    parser.add_argument("--topics", action="append", default=[], metavar="A,B", help="source names")
    parser.add_argument(
        "--level",
        choices=("L0", "L1"),
        default="L1",
        help="L1 compares every record; L0 looks at the topics only, so it ends with 3 (incomplete) at best",
    )
    parser.add_argument("--final", action="store_true", help="the source is fenced: nothing may be pending")
    parser.add_argument("--since", type=Path, metavar="SUMMARY", help="only what lies above an earlier proof")
    parser.add_argument("--wait", type=float, default=30.0, metavar="SECONDS", help="for the flow to catch up")
    parser.add_argument("--chunk", type=int, default=50_000, metavar="OFFSETS")
    return parser


if __name__ == "__main__":
    sys.exit(main())
