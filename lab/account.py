"""Counts a run's records, from the applications' own notes: lost, repeated, out of order; time without writes.

`python -m watershed.lab.account DIR` (the directory that holds the applications). It asks no broker and nothing of
Watershed.

lost          acknowledged to a producer, not processed by the consumer group
repeated      processed again (n times processed counts n - 1)
out of order  first processed after a later record of the same key
Memory: about 150 bytes a processed record.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from watershed.lab.application_records import (
    ENTRY_DTYPES,
    ENTRY_FIELDS,
    ENTRY_FORMAT,
    read_application_description,
    read_words,
)
from watershed.lab.preload import PreloadAccount, list_preloads

_LAYOUT = np.dtype({"names": ENTRY_FIELDS, "formats": ENTRY_DTYPES, "itemsize": ENTRY_FORMAT.size})
_SHIFT = 32  # a code is (series and key) << 32 | the record's number
_EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class _ClusterSwitch:
    """A producer's change of cluster. Times are in ms since 1970; `seconds` lie between the two acknowledgements."""

    application: str
    source: str
    target: str
    last_ack_ms: int
    first_ack_ms: int

    @property
    def seconds(self) -> float:
        return (self.first_ack_ms - self.last_ack_ms) / 1000


@dataclass(frozen=True, slots=True)
class GroupAccount:
    """What one consumer group processed, compared with what was acknowledged in its topics."""

    group: str
    topics: tuple[str, ...]
    acked: int
    processed: int
    processed_distinct: int
    lost: int
    repeated: int
    out_of_order_per_key: int
    unacknowledged: int
    lost_examples: tuple[str, ...]
    repeated_examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunAccount:
    """The whole run. Counts are sums over the groups; `acked` counts every acknowledged record once."""

    acked: int
    preloaded: int
    groups: tuple[GroupAccount, ...]
    moves: tuple[_ClusterSwitch, ...]
    longest_pause_s: dict[str, float]
    unread_topics: tuple[str, ...]
    first_ack_ms: int | None
    last_ack_ms: int | None

    @property
    def lost(self) -> int:
        """Acknowledged records that a group did not process, summed over the groups."""
        return sum(group.lost for group in self.groups)

    @property
    def repeated(self) -> int:
        """Records that a group processed again, summed over the groups."""
        return sum(group.repeated for group in self.groups)

    @property
    def processed_distinct(self) -> int:
        """Different records that were processed, summed over the groups."""
        return sum(group.processed_distinct for group in self.groups)

    @property
    def out_of_order_per_key(self) -> int:
        """Records that a group processed after a later record of the same key, summed over the groups."""
        return sum(group.out_of_order_per_key for group in self.groups)

    @property
    def seconds_without_writes(self) -> dict[str, float]:
        """For each producer that changed its cluster: the seconds of its longest change."""
        names = dict.fromkeys(move.application for move in self.moves)
        return {name: max(move.seconds for move in self.moves if move.application == name) for name in names}

    @property
    def max_seconds_without_writes(self) -> float:
        """The longest gap between the last acknowledgement at one cluster and the first at the next."""
        return max(self.seconds_without_writes.values(), default=0.0)

    def to_json(self) -> dict[str, Any]:
        """Schema 1: the totals first, then every group, producer and move."""
        value = asdict(self)
        value["moves"] = [{**asdict(move), "seconds": move.seconds} for move in self.moves]
        totals = {name: getattr(self, name) for name in _TOTALS}
        return {"schema": 1, **totals, **value}


_TOTALS = (
    "acked",
    "processed_distinct",
    "lost",
    "repeated",
    "out_of_order_per_key",
    "seconds_without_writes",
    "max_seconds_without_writes",
)


def build_account(applications: Sequence[Path]) -> RunAccount:
    """Reads the directories of producers, preloads and consumers. Raises FileNotFoundError for a directory without an
    application."""
    about = {path: read_application_description(path) for path in applications}
    producers = [path for path in applications if about[path]["role"] == "producer"]
    consumers = [path for path in applications if about[path]["role"] == "consumer"]
    names = _Names()
    acked = {path: _entries(path, names) for path in producers}
    preloads = [each for path in producers for each in list_preloads(path)]
    groups: dict[str, list[Path]] = {}
    for path in consumers:
        groups.setdefault(about[path]["group"], []).append(path)
    accounts = []
    for group, members in groups.items():
        topics = tuple(sorted({topic for path in members for topic in about[path]["topics"]}))
        processed = np.concatenate([_entries(path, names) for path in members])
        accounts.append(_group(group, topics, list(acked.values()), preloads, processed, names))
    times = [entries["time"] for entries in acked.values() if len(entries)]
    read = {topic for group in accounts for topic in group.topics}
    written = {topic for path in producers for topic in about[path]["topics"]}
    preloaded = sum(each.records for each in preloads)
    return RunAccount(
        sum(len(entries) for entries in acked.values()) + preloaded,
        preloaded,
        tuple(accounts),
        tuple(
            move for path in producers for move in _moves(about[path]["name"], acked[path], read_words(path)["cluster"])
        ),
        {about[path]["name"]: _pause(acked[path]) for path in producers if len(acked[path])},
        tuple(sorted(written - read)),
        min((int(each.min()) for each in times), default=None),
        max((int(each.max()) for each in times), default=None),
    )


def find_applications(directory: Path) -> list[Path]:
    """The application directories below `directory`."""
    return sorted(path.parent for path in directory.rglob("app.json"))


class _Names:
    """Gives each series a number, the same for all files. A code holds this number, the key and the record's number."""

    def __init__(self) -> None:
        self.series: dict[str, int] = {}

    def number(self, series: str) -> int:
        return self.series.setdefault(series, len(self.series))

    def text(self, code: int) -> str:
        series = next(text for text, number in self.series.items() if number == code >> (_SHIFT + 20))
        app, topic = series.split(" ")
        return f"{app} {topic} key {code >> _SHIFT & 0xFFFFF} number {code & 0xFFFFFFFF}"


_WITH_CODE = np.dtype([("code", "<i8"), ("time", "<i8"), ("cluster", "u1")])


def _entries(directory: Path, names: _Names) -> np.ndarray:
    """The file's entries as (code, time, cluster). The codes of different files can be compared."""
    path = directory / "records.bin"
    usable = path.stat().st_size // ENTRY_FORMAT.size if path.exists() else 0
    out = np.zeros(usable, dtype=_WITH_CODE)
    if not usable:
        return out
    raw = np.memmap(path, dtype=_LAYOUT, mode="r", shape=(usable,))
    words = read_words(directory)
    series = np.array([names.number(text) for text in words["series"]], dtype=np.int64)
    out["code"] = (series[raw["series"]] << (_SHIFT + 20)) | (raw["key"].astype(np.int64) << _SHIFT) | raw["number"]
    out["time"] = raw["time"]
    out["cluster"] = raw["cluster"]
    return out


def _group(
    group: str,
    topics: tuple[str, ...],
    acked: list[np.ndarray],
    preloads: list[PreloadAccount],
    processed: np.ndarray,
    names: _Names,
) -> GroupAccount:
    codes = processed["code"][np.argsort(processed["time"], kind="stable")]
    distinct, first, counts = np.unique(codes, return_index=True, return_counts=True)
    wanted = np.array([names.number(text) for text in names.series if text.split(" ")[1] in topics], dtype=np.int64)
    live = np.concatenate([np.empty(0, np.int64), *(entries["code"] for entries in acked)])
    live = live[np.isin(live >> (_SHIFT + 20), wanted)]
    live_lost = live[~np.isin(live, distinct)]
    lost, examples = len(live_lost), [names.text(int(code)) for code in live_lost[:_EXAMPLES]]
    expected, preloaded_read = len(live), 0
    for preload in preloads:
        if preload.topic not in topics:
            continue
        expected += preload.records
        found = _read_of(preload, distinct, names)
        preloaded_read += len(found)
        lost += preload.records - len(found)
        if preload.records > len(found) and len(examples) < _EXAMPLES:
            examples += _missing(preload, found, names)[: _EXAMPLES - len(examples)]
    again = distinct[counts > 1]
    return GroupAccount(
        group,
        topics,
        expected,
        len(codes),
        len(distinct),
        lost,
        len(codes) - len(distinct),
        _out_of_order(codes[np.sort(first)]),
        len(distinct) - (len(live) - len(live_lost)) - preloaded_read,
        tuple(examples),
        tuple(names.text(int(code)) for code in again[:_EXAMPLES]),
    )


def _read_of(preload: PreloadAccount, distinct: np.ndarray, names: _Names) -> np.ndarray:
    """The distinct codes that belong to the preload."""
    series = names.number(f"{preload.app} {preload.topic}")
    low, high = np.searchsorted(distinct, [series << (_SHIFT + 20), (series + 1) << (_SHIFT + 20)])
    mine = distinct[low:high]
    last = np.array(preload.last, dtype=np.int64)
    keys = (mine >> _SHIFT) & 0xFFFFF
    known = keys < len(last)
    return mine[known & ((mine & 0xFFFFFFFF) <= last[np.where(known, keys, 0)])]


def _missing(preload: PreloadAccount, found: np.ndarray, names: _Names) -> list[str]:
    series = names.number(f"{preload.app} {preload.topic}")
    there = set(found.tolist())
    examples: list[str] = []
    for key, last in enumerate(preload.last):
        base = (series << (_SHIFT + 20)) | (key << _SHIFT)
        examples += [names.text(base | n) for n in range(1, last + 1) if base | n not in there]
        if len(examples) >= _EXAMPLES:
            break
    return examples


def _out_of_order(codes: np.ndarray) -> int:
    """Counts codes that stand after a higher number of the same key. `codes` are in the order of first processing."""
    by_key = codes[np.argsort(codes >> _SHIFT, kind="stable")]
    # Codes of a later key are higher, so one running maximum serves all keys.
    return int(np.count_nonzero(by_key[1:] < np.maximum.accumulate(by_key)[:-1])) if len(by_key) else 0


def _moves(application: str, entries: np.ndarray, clusters: list[str]) -> list[_ClusterSwitch]:
    """The cluster changes of one producer. `entries` are in the order of acknowledgement."""
    at: list[int] = np.flatnonzero(np.diff(entries["cluster"])).tolist() if len(entries) else []
    return [
        _ClusterSwitch(
            application,
            clusters[entries["cluster"][index]],
            clusters[entries["cluster"][index + 1]],
            int(entries["time"][index]),
            int(entries["time"][index + 1]),
        )
        for index in at
    ]


def _pause(entries: np.ndarray) -> float:
    return float(np.diff(entries["time"]).max()) / 1000 if len(entries) > 1 else 0.0


def main(argv: list[str] | None = None) -> None:
    """Prints the account of a directory as JSON. Exits 1 when a record was lost, repeated or out of order."""
    parser = ArgumentParser(prog="python -m watershed.lab.account", description="Accounts for the sample applications.")
    parser.add_argument("directory", type=Path, help="the directory that holds the applications' directories")
    options = parser.parse_args(argv)
    found = find_applications(options.directory)
    if not found:
        sys.exit(f"watershed.lab.account: no application in {options.directory}")
    result = build_account(found)
    click.echo(json.dumps(result.to_json(), indent=2))
    sys.exit(1 if result.lost or result.repeated or result.out_of_order_per_key else 0)


if __name__ == "__main__":
    main()
