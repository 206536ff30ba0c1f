"""What a proof leaves behind: `summary.json` (the shape of design 08) and the chunks as Parquet.

Both are written to a temporary name and renamed, so that whoever finds one finds all of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from spark.errors import WrongUse
from spark.fingerprint import VERSION
from spark.verdict import EXIT_CODES, ChunkRow, Confirmed, Counts, Judgement, chunk_json, proof_root
from spark.window import Earlier, Place, Window

SCHEMA = 1
EXAMPLES = 50


def summary(
    judgement: Judgement,
    rows: Sequence[ChunkRow],
    confirmed: Sequence[Confirmed],
    windows: Sequence[Window],
    *,
    facts: dict[str, Any],
    not_compared: Iterable[str],
) -> dict[str, Any]:
    """The document. `facts`: topology, plan_hash, level, mode, started_at, ended_at, seconds, flows, ..."""
    notes = [note for window in windows for note in window.not_compared]
    compared = sum(row.source_sum.n for row in rows)
    if not compared and not judgement.errors:
        notes.append("no record was compared: the windows hold none")
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "verdict": judgement.verdict,
        "exit_code": EXIT_CODES[judgement.verdict],
        **judgement.total.to_json(),
        "exact": judgement.exact,
        "flows": _flows(judgement, facts.pop("flows", ())),
        "proof_root": proof_root(rows),
        "window": {
            "fixed_at": facts.pop("fixed_at", None),
            "mode": facts.get("mode"),
            "partitions": [_window_json(window) for window in windows],
        },
        "not_compared": [*dict.fromkeys((*not_compared, *notes))],
        "findings": list(judgement.blocks),
        "differences": _examples(confirmed),
        "chunks": len(rows),
        "records": compared,
        "bytes": sum(row.source_sum.size for row in rows),
        "fingerprint": VERSION,
        **facts,
    }
    if judgement.errors:
        document["error"] = " ".join(dict.fromkeys(judgement.errors[:3]))
    return document


def error_summary(message: str, facts: dict[str, Any]) -> dict[str, Any]:
    """The document of a proof that could not be made."""
    judgement = Judgement({}, errors=(message,))
    return summary(judgement, (), (), (), facts=dict(facts), not_compared=())


def write_summary(directory: Path, document: dict[str, Any]) -> Path:
    path = directory / "summary.json"
    _replace(path, (json.dumps(document, indent=2, sort_keys=False) + "\n").encode())
    return path


def write_chunks(directory: Path, rows: Sequence[ChunkRow]) -> Path:
    """All chunk rows, sorted as the Merkle tree has them."""
    import pyarrow as pa
    from pyarrow import parquet

    path = directory / "chunks.parquet"
    lines = sorted((chunk_json(row) for row in rows), key=lambda line: json.dumps(line, sort_keys=True))
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pylist(lines), sink)
    _replace(path, sink.getvalue().to_pybytes())
    return path


def read_earlier(path: Path) -> dict[tuple[Place, tuple[str, str]], Earlier]:
    """Where an earlier proof ended, by partition and its topic ids.

    Raises WrongUse for a file that is no summary, or one that left something unproven.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        unproven, partitions = document["unproven"], document["window"]["partitions"]
        if document["schema"] != SCHEMA:
            raise WrongUse(f"{path} has schema {document['schema']}; this version reads {SCHEMA}")
        verdict, level = document["verdict"], document["level"]
        found = {}
        for p in partitions:
            place = Place(p["flow"], p["topic"], p["target_topic"], p["partition"])
            earlier = Earlier(p["source_end"], p["target_end"], p["proven"] + p["proven_earlier"])
            found[place, (p["source_id"], p["target_id"])] = earlier
    except OSError as error:
        raise WrongUse(f"cannot read the earlier summary {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise WrongUse(f"{path} is not the summary of a proof ({error!r})") from None
    if unproven or verdict == "error" or level == "L0":
        raise WrongUse(
            f"{path} proves nothing to build on (verdict {verdict}, level {level}, {unproven} unproven); "
            "run a whole proof instead, without --since"
        )
    return found


def with_counts(document: dict[str, Any], judgement: Judgement) -> dict[str, Any]:
    """Adds its counts to every window: a later proof can build on them."""
    for line in document["window"]["partitions"]:
        place = Place(line["flow"], line["topic"], line["target_topic"], line["partition"])
        line |= judgement.partitions.get(place, Counts()).to_json()
    return document


def _flows(judgement: Judgement, ids: Iterable[str]) -> list[dict[str, Any]]:
    places = sorted(judgement.partitions)
    flows: dict[str, dict[str, Any]] = {id_: {"id": id_, **Counts().to_json(), "topics": []} for id_ in ids}
    for flow, in_flow in groupby(places, key=lambda place: place.flow):
        topics, total = [], Counts()
        for (topic, target), in_topic in groupby(in_flow, key=lambda p: (p.topic, p.target_topic)):
            counts = sum((judgement.partitions[place] for place in in_topic), Counts())
            topics.append({"topic": topic, "target_topic": target, **counts.to_json()})
            total += counts
        flows[flow] = {"id": flow, **total.to_json(), "topics": topics}
    return list(flows.values())


def _window_json(window: Window) -> dict[str, Any]:
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


def _examples(confirmed: Iterable[Confirmed]) -> list[dict[str, Any]]:
    """Coordinates only: keys and values of records are customers' data."""
    lines = [
        {
            **each.place._asdict(),
            "kind": example.kind,
            "source_offset": example.source_offset,
            "target_offset": example.target_offset,
            "components": list(example.components),
        }
        for each in confirmed
        for example in each.difference.examples
    ]
    return lines[:EXAMPLES]


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_bytes(content)
    new.replace(path)
