"""What a proof found, as data: the document `summary.json` and the rows of its tables.

`spark/evidence/summary.schema.json` is the document's schema. `schema` rises when keys come; none goes and none
changes meaning.
Schema 2: run_id, topics, worst_chunks, groups, named, policy, engine, spark_version, tables; the tables beside it.
"""

from __future__ import annotations

import heapq
import secrets
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple

from watershed.clusters.record_fingerprint import FINGERPRINT_VERSION
from watershed.spark.evidence.parquet_tables import (
    TableRows,
    build_chunk_name,
    build_chunk_rows,
    build_diff_rows,
    build_group_row,
    build_group_rows,
    build_partition_rows,
    build_run_row,
)
from watershed.spark.judging.group_position_landing import LandedPosition
from watershed.spark.judging.proof_window import PartitionPair, ProofWindow
from watershed.spark.judging.verdict import (
    EXIT_CODES,
    ChunkRow,
    ConfirmedDifference,
    Counts,
    ProofJudgement,
    compute_proof_root,
)

_SCHEMA = 2
_EXAMPLES = 50  # differences in the document; the table has all that were named
_WORST = 20
_GROUPS = 200  # positions of groups in the document


class ProofFindings(NamedTuple):
    """What a proof came to: the judgement, what was read and compared, and within which windows."""

    judgement: ProofJudgement
    rows: Sequence[ChunkRow] = ()
    confirmed: Sequence[ConfirmedDifference] = ()
    windows: Sequence[ProofWindow] = ()
    groups: Sequence[LandedPosition] = ()


def build_run_id(began: float) -> str:
    """`20261121T221648-3fa9c1d2`: sorts by time, and is another one for every proof. began: seconds since 1970."""
    return f"{datetime.fromtimestamp(began, UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


def build_results(
    found: ProofFindings, facts: Mapping[str, Any], notes: Iterable[str]
) -> tuple[dict[str, Any], dict[str, TableRows]]:
    """(the document, the rows of every table). facts: run_id, started_at, ended_at, seconds, level, mode, policy …"""
    document = build_summary(found, facts=dict(facts), not_compared=notes)
    run = document["run_id"]
    diffs = build_diff_rows(run, found.confirmed, found.rows, document["policy"].get("max_diffs", _EXAMPLES))
    counts = found.judgement.total
    total = counts.difference_count + counts.quarantined + counts.repeated
    document["named"] = {"differences": len(diffs), "of": total, "all": found.judgement.exact and len(diffs) == total}
    tables: dict[str, TableRows] = {
        "runs": [build_run_row(document, len(diffs), len(found.groups))],
        "partitions": build_partition_rows(run, found.judgement, found.windows),
        "chunks": build_chunk_rows(run, found.rows),
        "diffs": diffs,
        "groups": build_group_rows(run, found.groups),
    }
    return document, tables


def build_error_results(message: str, facts: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, TableRows]]:
    """Of a proof that could not be made."""
    return build_results(ProofFindings(ProofJudgement({}, errors=(message,))), facts, ())


def build_summary(found: ProofFindings, *, facts: dict[str, Any], not_compared: Iterable[str]) -> dict[str, Any]:
    """The document but for the names of its tables. `facts`: as `results` takes them."""
    judgement, rows, confirmed, windows, groups = found
    alignments = facts.pop("alignments", {})
    notes = [note for window in windows for note in window.not_compared]
    read = [row for row in rows if row.status != "earlier"]
    compared = sum(row.source_sum.n for row in read)
    if not compared and not judgement.errors:
        notes.append("no record was compared: the windows hold none")
    document: dict[str, Any] = {
        "schema": _SCHEMA,
        "verdict": judgement.verdict,
        "exit_code": EXIT_CODES[judgement.verdict],
        **judgement.total.to_json(),
        "exact": judgement.exact,
        "flows": _flows(judgement, facts.pop("flows", ()), facts.pop("guarantees", {}), facts.pop("transforms", {})),
        "topics": _topics(judgement, rows),
        "groups": _groups(groups),
        "proof_root": compute_proof_root(rows),
        "window": {
            "fixed_at": facts.pop("fixed_at", None),
            "mode": facts.get("mode"),
            "partitions": [
                _window_json(window)
                | judgement.partitions.get(window.place, Counts()).to_json()
                | {"mode": "state" if window.place in judgement.by_state else "records"}
                for window in windows
            ],
        },
        "not_compared": [*dict.fromkeys((*not_compared, *notes))],
        "findings": list(judgement.blocks),
        "differences": _examples(confirmed),
        "worst_chunks": rank_worst_chunks(rows, confirmed),
        "chunks": len(rows),
        "records": compared,
        "bytes": sum(row.source_sum.size for row in read),
        "fingerprint": FINGERPRINT_VERSION,
        **facts,
    }
    if judgement.errors:
        document["error"] = " ".join(dict.fromkeys(judgement.errors[:3]))
    lines = [(line["flow"], line) for line in document["topics"]]
    for flow, line in lines + [(each["id"], line) for each in document["flows"] for line in each["topics"]]:
        how = alignments.get((flow, line["topic"]), ())
        line |= {"alignment": "inferred" if how else "ledger", "how": list(dict.fromkeys(how))}
    return document


def rank_worst_chunks(rows: Sequence[ChunkRow], confirmed: Sequence[ConfirmedDifference]) -> list[dict[str, Any]]:
    """Those of which most is unproven, as far as their differences are named one by one."""
    kinds: dict[tuple[PartitionPair, int], Counter[str]] = {}
    for line in build_diff_rows("", confirmed, rows, sys.maxsize):
        place = PartitionPair(line["flow"], line["topic"], line["target_topic"], line["partition"])
        kinds.setdefault((place, int(line["chunk"].rpartition("@")[2])), Counter())[line["kind"]] += 1
    found = []
    for row in rows:
        named = kinds.get((row.place, row.source.start), Counter())
        if row.status in ("different", "unverifiable") or (row.status == "state" and named):
            lost = abs(row.source_sum.n - row.target_sum.n)
            weight = row.status == "unverifiable", -max(named.total(), lost, row.unverifiable)
            found.append((weight, row, named))
    found.sort(key=lambda each: (each[0], each[1].place, each[1].source))
    return [
        {
            "chunk": build_chunk_name(row.place.topic, row.place.partition, row.source.start),
            **row.place._asdict(),
            "status": row.status,
            "by": row.by,
            "why": row.why,
            "source_start": row.source.start,
            "source_end": row.source.end,
            "target_start": row.target.start,
            "target_end": row.target.end,
            "source_records": row.source_sum.n,
            "target_records": row.target_sum.n,
            "unverifiable": row.unverifiable,
            "differences": dict(sorted(named.items())),
        }
        for _, row, named in found[:_WORST]
    ]


def _topics(judgement: ProofJudgement, rows: Sequence[ChunkRow]) -> list[dict[str, Any]]:
    """One line a topic and flow, those that are not proven first."""
    lines: dict[tuple[str, str, str], dict[str, Any]] = {}
    for place in sorted(judgement.partitions):
        key = place.flow, place.topic, place.target_topic
        counts = judgement.partitions[place]
        line = lines.setdefault(
            key,
            {
                "flow": place.flow,
                "topic": place.topic,
                "target_topic": place.target_topic,
                "partitions": 0,
                "chunks": 0,
                "records": 0,
                "bytes": 0,
                **Counts().to_json(),
            },
        )
        line["partitions"] += 1
        for name, count in counts.to_json().items():
            line[name] += count
    for row in rows:
        line = lines[row.place.flow, row.place.topic, row.place.target_topic]
        line["chunks"] += 1
        if row.status != "earlier":
            line["records"] += row.source_sum.n
            line["bytes"] += row.source_sum.size
    return sorted(lines.values(), key=lambda line: (-line["unproven"], -line["pending"], line["flow"], line["topic"]))


def _groups(found: Sequence[LandedPosition]) -> dict[str, Any]:
    """Counts of positions by word, and the positions themselves, what is worst first."""
    order = ("different", "unknown", "told", "same")
    lines = sorted(found, key=lambda each: (order.index(each.judged), each.group, each.topic, each.partition))
    return {
        "compared": len(found),
        **{word: sum(each.judged == word for each in found) for word in order},
        "translations": dict(sorted(Counter(each.translation for each in found).items())),
        "landings": dict(sorted(Counter(each.landing for each in found).items())),
        "positions": [build_group_row(each) for each in lines[:_GROUPS]],
    }


def _flows(
    judgement: ProofJudgement,
    ids: Iterable[str],
    guarantees: Mapping[str, str | None],
    transforms: Mapping[str, Mapping[str, str | None]],
) -> list[dict[str, Any]]:
    places = sorted(judgement.partitions)
    flows: dict[str, dict[str, Any]] = {id_: {"id": id_, **Counts().to_json(), "topics": []} for id_ in ids}
    for flow, in_flow in groupby(places, key=lambda place: place.flow):
        topics, total = [], Counts()
        for (topic, target), in_topic in groupby(in_flow, key=lambda p: (p.topic, p.target_topic)):
            counts = sum((judgement.partitions[place] for place in in_topic), Counts())
            topics.append({"topic": topic, "target_topic": target, **counts.to_json()})
            total += counts
        flows[flow] = {"id": flow, **total.to_json(), "topics": topics}
    return [line | {"guarantee": guarantees.get(flow)} | dict(transforms.get(flow, {})) for flow, line in flows.items()]


def _window_json(window: ProofWindow) -> dict[str, Any]:
    return {
        **window.place._asdict(),
        "source_start": window.source.start,
        "source_end": window.source.end,
        "target_start": window.target.start,
        "target_end": window.target.end,
        "barrier": window.tail.end,
        "source_id": str(window.ids[0]),
        "target_id": str(window.ids[1]),
    }


def _examples(confirmed: Iterable[ConfirmedDifference]) -> list[dict[str, Any]]:
    """Coordinates only: keys and values of records are customers' data. Some of every kind and range come before many
    of one."""
    ranked: list[tuple[int, int, dict[str, Any]]] = []
    for each in confirmed:
        seen: Counter[str] = Counter()
        for example in each.difference.examples:
            line = {
                **each.place._asdict(),
                "kind": example.kind,
                "source_offset": example.source_offset,
                "target_offset": example.target_offset,
                "components": list(example.components),
            }
            ranked.append((seen[example.kind], len(ranked), line))
            seen[example.kind] += 1
    few = heapq.nsmallest(_EXAMPLES, ranked, key=lambda each: each[:2])
    return [line for _, _, line in sorted(few, key=lambda each: each[1])]
