"""What the rehearsal's own producers had acknowledged and its consumers read: lost, read again, out of order, and how
long nobody could write."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from watershed.topology.bounded_json import parse_json_object

Record = tuple[str, bytes]  # topic of the wave, digest of key and value


@dataclass(slots=True)
class _ProducerStay:
    """From the first to the last acknowledgement of one producer at one cluster, seconds of one clock."""

    cluster: str
    first: float
    last: float


class RecordTally:
    """May be shared by threads. `clock` gives seconds that only grow. About 200 bytes a record and group."""

    def __init__(self, drill: str, clock: Callable[[], float]) -> None:
        self._drill, self._clock = drill, clock
        self._lock = threading.Lock()
        self._written: Counter[Record] = Counter()
        self._read: defaultdict[str, Counter[Record]] = defaultdict(Counter)
        self._newest: dict[tuple[str, str, str, bytes | None], int] = {}
        self._disordered: Counter[str] = Counter()
        self._stretches: defaultdict[str, list[_ProducerStay]] = defaultdict(list)
        self._copied = 0

    def value(self, producer: str, number: int) -> bytes:
        """What a producer writes: its own name and a number that grows with every record of one key."""
        return json.dumps({"drill": self._drill, "producer": producer, "number": number}).encode()

    def copied(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """A record of the original stands in its copy."""
        with self._lock:
            self._written[topic, _digest(key, value)] += 1
            self._copied += 1

    def acknowledged(self, producer: str, topic: str, key: bytes | None, value: bytes, cluster: str) -> None:
        """Counts a record that the cluster `cluster` acknowledged, and extends the producer's stay there."""
        now = self._clock()
        with self._lock:
            self._written[topic, _digest(key, value)] += 1
            stretches = self._stretches[producer]
            if not stretches or stretches[-1].cluster != cluster:
                stretches.append(_ProducerStay(cluster, now, now))
            stretches[-1].last = now

    def read(self, group: str, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Counts a record that the group read; a number that comes after a larger one counts as out of order."""
        with self._lock:
            seen = self._read[group]
            record = topic, _digest(key, value)
            seen[record] += 1
            numbered = self._numbered(value)
            if numbered is None or seen[record] > 1:
                return
            producer, number = numbered
            series = group, f"{topic}|{producer}", topic, key
            self._disordered[group] += number < self._newest.get(series, -1)
            self._newest[series] = max(number, self._newest.get(series, -1))

    def behind(self, groups: tuple[str, ...]) -> int:
        """Records that some group has not read yet."""
        with self._lock:
            return sum(sum((self._written - self._read[group]).values()) for group in groups)

    def counts(self, groups: tuple[str, ...]) -> dict[str, Any]:
        """JSON: `copied`, `acknowledged`; by group `read`, `lost`, `again`, `out_of_order`; `moves`: of each producer,
        from where to where, with `seconds` between the two acknowledgements."""
        with self._lock:
            rows = {group: self._group(group) for group in groups}
            moves = [
                {"producer": name, "source": one.cluster, "target": other.cluster, "seconds": other.first - one.last}
                for name, stretches in sorted(self._stretches.items())
                for one, other in itertools.pairwise(stretches)
            ]
            written = sum(self._written.values())
            return {"copied": self._copied, "acknowledged": written - self._copied, "groups": rows, "moves": moves}

    def _group(self, group: str) -> dict[str, int]:
        read = self._read[group]
        # One that was read and never acknowledged is the producer's affair: its answer was lost on the way.
        again = sum(max(0, count - max(1, self._written[record])) for record, count in read.items())
        return {
            "read": sum(read.values()),
            "lost": sum((self._written - read).values()),
            "again": again,
            "out_of_order": self._disordered[group],
        }

    def _numbered(self, value: bytes | None) -> tuple[str, int] | None:
        if value is None or not value.startswith(b'{"drill": '):
            return None
        try:
            found = parse_json_object(value)
            return (found["producer"], found["number"]) if found["drill"] == self._drill else None
        except (ValueError, KeyError, TypeError):
            return None


def _digest(key: bytes | None, value: bytes | None) -> bytes:
    digest = hashlib.blake2b(digest_size=12)
    for part in (key, value):
        digest.update(b"-" if part is None else b"+%d:" % len(part) + part)
    return digest.digest()
