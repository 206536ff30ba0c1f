"""Gathers what one scan or one log tells of clients, piece by piece, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from watershed.topology.client_inventory import SeenClient, SeenProducer, SeenSpan, limit_names, limit_producer_ids

_T = TypeVar("_T")
MOST_CLIENTS: Final = 50_000  # of one scan or one log
_MOST_TOPICS: Final = 5_000  # of one client


@dataclass(frozen=True, slots=True)
class ClientSighting:
    """A client at a moment. What is not told is None, or empty."""

    principal: str | None
    client_id: str | None
    ms: int
    source: str
    software: str | None = None
    host: str | None = None
    group: str | None = None
    transactional_id: str | None = None
    producer_id: int | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Gathered:
    principal: str | None
    client_id: str | None
    first_ms: int
    last_ms: int
    lists: dict[str, set[str]] = field(default_factory=dict)
    producer_ids: set[int] = field(default_factory=set)
    reads: dict[str, tuple[int, int]] = field(default_factory=dict)
    writes: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _GatheredProducer:
    ms: int
    transactional_id: str | None = None
    writes: dict[str, tuple[int, int]] = field(default_factory=dict)


class ClientCollector:
    """left_out counts sightings of clients and producers beyond 50,000 each, and of topics beyond 5,000 of one."""

    def __init__(self, most_clients: int = MOST_CLIENTS) -> None:
        self.left_out = 0
        self._most = most_clients
        self._clients: dict[tuple[str, str], _Gathered] = {}
        self._producers: dict[int, _GatheredProducer] = {}

    def add(self, sighting: ClientSighting) -> None:
        """Takes one sighting in."""
        key = (sighting.principal or "", sighting.client_id or "")
        client = self._clients.get(key)
        if client is None:
            if len(self._clients) >= self._most:
                self.left_out += 1
                return
            client = _Gathered(sighting.principal, sighting.client_id, sighting.ms, sighting.ms)
            self._clients[key] = client
        client.first_ms, client.last_ms = min(client.first_ms, sighting.ms), max(client.last_ms, sighting.ms)
        for name in ("software", "host", "group", "transactional_id", "source"):
            value = getattr(sighting, name)
            if value is not None:
                _add_limited(client.lists.setdefault(name, set()), value, limit_names)
        if sighting.producer_id is not None:
            _add_limited(client.producer_ids, sighting.producer_id, limit_producer_ids)
        self._add_topics(client.reads, sighting.reads, sighting.ms)
        self._add_topics(client.writes, sighting.writes, sighting.ms)

    def add_write(self, producer_id: int, topic: str, last_ms: int) -> None:
        """A producer by its number, with the time of its last record in the topic, as its partition's leader has it."""
        if (producer := self._find_producer(producer_id, last_ms)) is not None:
            self._add_topics(producer.writes, (topic,), last_ms)

    def name_producer(self, producer_id: int, transactional_id: str, ms: int) -> None:
        """A producer of which the transaction coordinator knows the transactional id at `ms`."""
        if (producer := self._find_producer(producer_id, ms)) is not None:
            producer.transactional_id = transactional_id

    def _find_producer(self, producer_id: int, ms: int) -> _GatheredProducer | None:
        if producer_id not in self._producers and len(self._producers) >= self._most:
            self.left_out += 1
            return None
        return self._producers.setdefault(producer_id, _GatheredProducer(ms))

    def list_clients(self) -> tuple[SeenClient, ...]:
        """What was gathered, in the order of the inventory."""
        return tuple(_build_client(self._clients[key]) for key in sorted(self._clients))

    def list_producers(self) -> tuple[SeenProducer, ...]:
        """What was gathered, by number."""
        return tuple(_build_producer(key, self._producers[key]) for key in sorted(self._producers))

    def _add_topics(self, spans: dict[str, tuple[int, int]], topics: Iterable[str], ms: int) -> None:
        for topic in topics:
            first, last = spans.get(topic, (ms, ms))
            if topic not in spans and len(spans) >= _MOST_TOPICS:
                self.left_out += 1
            else:
                spans[topic] = min(first, ms), max(last, ms)


def _add_limited(kept: set[_T], one: _T, limit: Callable[[Iterable[_T]], tuple[_T, ...]]) -> None:
    """Keeps those that `limit` keeps, and little more in memory."""
    kept.add(one)
    if len(kept) > 2_000:
        some = limit(kept)
        kept.clear()
        kept.update(some)


def _build_producer(producer_id: int, found: _GatheredProducer) -> SeenProducer:
    """Seen is when it wrote; of one whose state partitions have forgotten, when the coordinator knew it."""
    times = [ms for span in found.writes.values() for ms in span] or [found.ms]
    writes = {topic: SeenSpan(*span) for topic, span in sorted(found.writes.items())}
    return SeenProducer(producer_id, SeenSpan(min(times), max(times)), found.transactional_id, writes)


def _build_client(found: _Gathered) -> SeenClient:
    lists = {name: limit_names(names) for name, names in found.lists.items()}
    return SeenClient(
        found.principal,
        found.client_id,
        SeenSpan(found.first_ms, found.last_ms),
        lists.get("software", ()),
        lists.get("host", ()),
        lists.get("group", ()),
        lists.get("transactional_id", ()),
        limit_producer_ids(found.producer_ids),
        lists.get("source", ()),
        {topic: SeenSpan(*span) for topic, span in sorted(found.reads.items())},
        {topic: SeenSpan(*span) for topic, span in sorted(found.writes.items())},
    )
