"""Summaries and tables of proofs that never were, in the shapes of `spark.evidence`."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from watershed.spark.evidence.parquet_tables import COUNT_COLUMNS, TABLE_COLUMNS

T0 = 1_763_000_000_000
SIZE = 50_000
Tables = dict[str, list[dict[str, Any]]]


def chunk(partition: int, number: int, topic: str = "orders", **other: Any) -> dict[str, Any]:
    """Chunk `number` of a partition: `SIZE` records of one minute; equal by batches unless told otherwise."""
    start, since = number * SIZE, T0 + number * 60_000
    line: dict[str, Any] = {"run_id": "r", "chunk": f"{topic}-{partition}@{start}", **place(partition, topic)}
    line |= {"status": "equal", "by": "batches", "reads": 1, "why": ""}
    for side in ("source", "target"):
        line |= {f"{side}_start": start, f"{side}_end": start + SIZE, f"{side}_records": SIZE}
        line |= {f"{side}_bytes": SIZE * 100, f"{side}_since": since, f"{side}_until": since + 59_999}
        line |= {f"{side}_{name}": "0" for name in ("m", "order", "key", "value", "headers", "timestamp")}
    assert set(line) == set(TABLE_COLUMNS["chunks"])
    return line | other


def place(partition: int, topic: str = "orders", flow: str = "onprem-to-cloud") -> dict[str, Any]:
    return {"flow": flow, "topic": topic, "target_topic": topic, "partition": partition}


def partition(number: int, chunks: int, topic: str = "orders", **counts: int) -> dict[str, Any]:
    end = chunks * SIZE
    line: dict[str, Any] = {"run_id": "r", **place(number, topic), "source_start": 0, "source_end": end}
    line |= {"target_start": 0, "target_end": end, "barrier": end + counts.get("pending", 0)}
    line |= {"source_id": "a", "target_id": "b", **dict.fromkeys(COUNT_COLUMNS, 0), "proven": end, **counts}
    assert set(line) == set(TABLE_COLUMNS["partitions"])
    return line


def position(**other: Any) -> dict[str, Any]:
    line = {"run_id": "r", **place(0), "group": "billing", "target_group": "billing", "committed": 1200}
    line |= {"translated": 1200, "translation": "exact", "translation_records": None, "at_target": 1200}
    line |= {
        "landing": "exact",
        "landing_records": None,
        "judged": "same",
        "why": "",
        "source_fp": "1",
        "target_fp": "1",
    }
    assert set(line) == set(TABLE_COLUMNS["groups"])
    return line | other


def difference(kind: str, source: int | None, target: int | None, *components: str, number: int = 0) -> dict[str, Any]:
    line = {"run_id": "r", "chunk": f"orders-{number}@0", **place(number), "kind": kind, "source_offset": source}
    line |= {"target_offset": target, "components": list(components), "source_fp": "1", "target_fp": None}
    line |= {"source_timestamp": T0, "target_timestamp": None, "key_hash": "ab"}
    assert set(line) == set(TABLE_COLUMNS["diffs"])
    return line


def document(tables: Tables, **other: Any) -> dict[str, Any]:
    """A summary with the counts of its partitions."""
    counts = {name: sum(p[name] for p in tables["partitions"]) for name in COUNT_COLUMNS}
    topics: dict[str, dict[str, Any]] = {}
    for p in tables["partitions"]:
        line = topics.setdefault(
            p["topic"], {**place(0, p["topic"]), "partitions": 0, "bytes": 0, **dict.fromkeys(COUNT_COLUMNS, 0)}
        )
        line["partitions"] += 1
        for name in COUNT_COLUMNS:
            line[name] += p[name]
    verdict = "different" if counts["unproven"] else "incomplete" if counts["pending"] else "proven"
    return {
        "schema": 2,
        "run_id": "20261121T220000Z-1",
        "topology": "orders",
        "plan_hash": "sha256:" + "ab" * 32,
        "verdict": verdict,
        **counts,
        "exact": True,
        "flows": [{"id": "onprem-to-cloud"}],
        "topics": list(topics.values()),
        "window": {"fixed_at": "2026-11-21T22:00:05.120+00:00"},
        "not_compared": ["consumer groups (level L3)"],
        "findings": [],
        "mode": "rolling",
        "level": "L2",
        "started_at": "2026-11-21T22:00:00.000+00:00",
        "ended_at": "2026-11-21T22:00:43.000+00:00",
        "seconds": 43.0,
        "chunks": len(tables["chunks"]),
        "records": counts["proven"],
        "fingerprint": 1,
        "proof_root": "sha256:" + "cd" * 32,
        "engine": "local[2]",
        "spark_version": "4.3.0",
        **other,
    }


def whole(partitions: int, chunks: int, topics: int = 1) -> Tables:
    """Everything is equal."""
    names = ["orders"] if topics == 1 else [f"orders.{number}" for number in range(topics)]
    numbers = [(name, number) for name in names for number in range(partitions)]
    return {
        "partitions": [partition(number, chunks, name) for name, number in numbers],
        "chunks": [chunk(number, each, name) for name, number in numbers for each in range(chunks)],
        "diffs": [],
        "groups": [],
    }


class Seen(HTMLParser):
    """A page as a browser's parser sees it: its tags with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.style = ""
        self._in: list[str] = []
        self.feed(html)
        self.close()
        assert self._in == [], f"not closed: {self._in}"

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def count(self, tag: str, cls: str = "") -> int:
        return sum(name == tag and (not cls or cls in (had.get("class") or "").split()) for name, had in self.tags)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self._in.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._in
        assert self._in.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._in[-1:] == ["style"]:
            self.style += data
        else:
            self.words.append(data)
