"""Judges a history and what both logs hold in the end. Anomalies have the names of Jepsen's Kafka-like workloads.

Every record carries a number that no other record has, so the fate of each is known. A finding is (name, what was
seen). Names used, read for a copy:

lost-write          acknowledged at the source, something behind it arrived, it never did
unseen              at the end of the source, not copied when the quiet period ended
duplicate           one number at two places
nonmonotonic-send   two records of a partition in another order than at the source
aborted-read        a record of an aborted transaction (or one that was never sent) on the target
inconsistent-offsets  one offset of the target, two values at two times
poll-skip           a reader of the target went over records that are there
nonmonotonic-poll   a reader of the target was sent back
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Log = Mapping[int, Sequence[tuple[int, int]]]  # partition → (offset, number), committed records only


class Anomaly(NamedTuple):
    name: str
    seen: str


@dataclass(slots=True)
class Facts:
    """What a history says of one topic."""

    acked: dict[int, int] = field(default_factory=dict)  # number → partition: acknowledged and committed
    aborted: set[int] = field(default_factory=set)
    polled: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # partition → (offset, number) as read


def facts(operations: Iterable[Mapping[str, Any]], topic: str) -> Facts:
    found = Facts()
    for each in operations:
        value = each["value"]
        if not isinstance(value, dict) or value.get("topic") != topic:
            continue
        if each["f"] == "send" and each["type"] == "ok":
            found.acked |= {number: partition for partition, _offset, number in value["acked"]}
        elif each["f"] == "send" and each["type"] == "fail":
            found.aborted |= set(value["sent"])
        elif each["f"] == "poll" and each["type"] == "ok":
            for partition, offset, number in value["read"]:
                found.polled.setdefault(partition, []).append((offset, number))
    return found


def anomalies(known: Facts, source: Log, target: Log) -> list[Anomaly]:
    """Everything that is wrong, in the order of partitions. A record that the source itself holds twice (a producer's
    retry, whose broker had forgotten it because its records were old) has to be on the target twice."""
    found: list[Anomaly] = []
    at_source = Counter(number for records in source.values() for _, number in records)
    everywhere: dict[int, list[tuple[int, int]]] = {}
    for partition, records in sorted(target.items()):
        for offset, number in records:
            places = everywhere.setdefault(number, [])
            places.append((partition, offset))
            if len(places) > max(at_source[number], 1):
                found.append(Anomaly("duplicate", f"{number} at {places[0]} and {places[-1]}"))
            if number in known.aborted:
                found.append(Anomaly("aborted-read", f"{number} at {(partition, offset)}"))
    for partition, records in sorted(source.items()):
        found += _partition(partition, [number for _, number in records], [n for _, n in target.get(partition, ())])
    for number, partition in known.acked.items():
        if number not in at_source:
            found.append(Anomaly("lost-write", f"{number} was acknowledged in {partition} and is not at the source"))
    found += _polls(known.polled, target)
    return found


def _partition(partition: int, here: list[int], there: list[int]) -> list[Anomaly]:
    found: list[Anomaly] = []
    place = {which: at for at, which in enumerate(_counted(here))}
    arrived = set(_counted(there))
    last_arrived = max((place[which] for which in arrived if which in place), default=-1)
    for which, at in place.items():
        if which not in arrived:
            name = "lost-write" if at < last_arrived else "unseen"
            found.append(Anomaly(name, f"{which[0]}, record {at} of partition {partition}"))
    before = -1
    for which in _counted(there):
        number, nth = which
        if which not in place:
            if nth == 0:  # more often than at the source is a duplicate, told above
                told = f"{number} in partition {partition} is not committed at the source"
                found.append(Anomaly("aborted-read", told))
            continue
        if place[which] < before:
            found.append(Anomaly("nonmonotonic-send", f"{number} in partition {partition} behind a later record"))
        before = max(before, place[which])
    return found


def _counted(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Each number with how often it stood before it: (7, 0), (8, 0), (7, 1)."""
    seen: Counter[int] = Counter()
    counted = []
    for number in numbers:
        counted.append((number, seen[number]))
        seen[number] += 1
    return counted


def _polls(polled: Mapping[int, Sequence[tuple[int, int]]], target: Log) -> list[Anomaly]:
    found: list[Anomaly] = []
    for partition, reads in sorted(polled.items()):
        final = dict(target.get(partition, ()))
        offsets = sorted(final)
        index = {offset: at for at, offset in enumerate(offsets)}
        before: int | None = None
        for offset, number in reads:
            if final.get(offset) != number:
                seen = f"{number} was read at {(partition, offset)}, in the end there is {final.get(offset)}"
                found.append(Anomaly("inconsistent-offsets", seen))
                continue
            if before is not None and offset <= before:
                found.append(Anomaly("nonmonotonic-poll", f"{offset} behind {before} in partition {partition}"))
            elif before is not None and index[offset] != index[before] + 1:
                found.append(Anomaly("poll-skip", f"from {before} to {offset} in partition {partition}"))
            before = offset
    return found
