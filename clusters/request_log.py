"""The clients in a broker's request log, read line by line in bounded memory, also from a compressed file."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from pathlib import Path
from typing import BinaryIO, Final

from watershed.clusters.request_log_line import LoggedRequest, UnreadableLine, parse_request_line
from watershed.topology.client_collector import MOST_CLIENTS, ClientCollector, ClientSighting
from watershed.topology.client_inventory import REQUEST_LOG, ClientObservation, ClusterClients, SeenSpan, limit_names
from watershed.topology.errors import UnreadableInventory

LONGEST_SILENCE_MS: Final = 5 * 60_000  # brokers log their own requests, too: silence means that nothing was logged
_LONGEST_LINE: Final = 16 << 20
_MOST_GAPS: Final = 1_000
_GZIP_MAGIC: Final = b"\x1f\x8b"
_UNKNOWN_TOPIC: Final = "id:"


@dataclass(slots=True)
class _Reading:
    collector: ClientCollector
    first_ms: int | None = None
    last_ms: int = 0
    used: int = 0
    failed: int = 0
    why: str = ""  # of the first line that could not be read
    refused: int = 0
    by_id: set[str] = field(default_factory=set)
    gaps: list[SeenSpan] = field(default_factory=list)
    addresses: set[str] = field(default_factory=set)
    cut: str = ""


def read_request_log(
    path: Path,
    alias: str,
    *,
    topic_ids: Mapping[str, str] | None = None,
    zone: tzinfo = UTC,
    most_clients: int = MOST_CLIENTS,
) -> ClusterClients:
    """The clients of cluster `alias` in this file. topic_ids: id as Kafka prints it → name, since newer requests name
    topics by id. zone: of the log's times, which brokers write without one.

    Lines that cannot be read are counted, and so are spans of more than five minutes without a line. Raises
    UnreadableInventory for a file that cannot be opened, or holds no line about a request.
    """
    reading = _Reading(ClientCollector(most_clients))
    name_topic = _build_topic_namer(topic_ids or {}, reading.by_id)
    try:
        with path.open("rb") as raw:
            for line in _split_lines(_open_compressed(raw), reading):
                _take_line(reading, line, zone, name_topic)
    except OSError as error:
        raise UnreadableInventory(f"{path}: {error.strerror or error}") from None
    if reading.first_ms is None:
        unread = f"{reading.failed} lines cannot be read ({reading.why})" if reading.failed else ""
        about = unread or reading.cut or "it has no such line"
        raise UnreadableInventory(
            f"{path} is no request log: {about}. Brokers write one while the logger kafka.request.logger is at DEBUG"
        )
    seen = SeenSpan(reading.first_ms, reading.last_ms)
    observation = ClientObservation(
        REQUEST_LOG,
        "/".join(path.resolve().parts[-2:]),  # logs of several brokers have the same name
        seen,
        reading.used,
        reading.failed,
        tuple(reading.gaps),
        limit_names(reading.addresses),
        tuple(_list_not_seen(reading)),
    )
    return ClusterClients(alias, None, reading.collector.list_clients(), observations=(observation,))


def _open_compressed(raw: BinaryIO) -> BinaryIO:
    """By what the file begins with: names of rotated logs say little."""
    begin = raw.read(len(_GZIP_MAGIC))
    raw.seek(0)
    return gzip.GzipFile(fileobj=raw) if begin == _GZIP_MAGIC else raw  # type: ignore[return-value]


def _split_lines(source: BinaryIO, reading: _Reading) -> Iterator[str]:
    """A line over 16 MiB counts as one that cannot be read. A compressed file may end in the middle, while a broker
    still writes it or after a crash: what came before is used."""
    try:
        while line := source.readline(_LONGEST_LINE):
            if not line.endswith(b"\n") and len(line) == _LONGEST_LINE:
                _count_failure(reading, "a line has more than 16 MiB")
                while (rest := source.readline(_LONGEST_LINE)) and not rest.endswith(b"\n"):
                    pass
                continue
            yield line.decode("utf-8", "replace")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        reading.cut = f"the file ends in the middle ({error}): what stands behind is not known"


def _take_line(reading: _Reading, line: str, zone: tzinfo, name_topic: Callable[[str], str]) -> None:
    try:
        request = parse_request_line(line, zone)
    except UnreadableLine as problem:
        _count_failure(reading, str(problem))
        return
    if request is None:
        return
    _note_time(reading, request.ms)
    reading.used += 1
    reading.refused += bool(request.refused)
    if len(reading.addresses) < _MOST_GAPS:
        reading.addresses.add(request.address)
    reading.collector.add(_build_sighting(request, name_topic))


def _note_time(reading: _Reading, ms: int) -> None:
    """Lines of several threads may stand a little out of order."""
    if reading.first_ms is None:
        reading.first_ms = reading.last_ms = ms
    silent = ms - reading.last_ms
    if silent > LONGEST_SILENCE_MS and len(reading.gaps) < _MOST_GAPS:
        reading.gaps.append(SeenSpan(reading.last_ms, ms))
    reading.first_ms, reading.last_ms = min(reading.first_ms, ms), max(reading.last_ms, ms)


def _build_sighting(request: LoggedRequest, name_topic: Callable[[str], str]) -> ClientSighting:
    return ClientSighting(
        request.principal,
        request.client_id,
        request.ms,
        REQUEST_LOG,
        request.software,
        request.host,
        request.group,
        request.transactional_id,
        request.producer_id,
        tuple(map(name_topic, request.reads)),
        tuple(map(name_topic, request.writes)),
    )


def _build_topic_namer(topic_ids: Mapping[str, str], unknown: set[str]) -> Callable[[str], str]:
    def name_topic(topic: str) -> str:
        if not topic.startswith(_UNKNOWN_TOPIC):
            return topic
        name = topic_ids.get(topic.removeprefix(_UNKNOWN_TOPIC))
        if name is None:
            unknown.add(topic)
        return name or topic

    return name_topic


def _count_failure(reading: _Reading, why: str) -> None:
    reading.failed += 1
    reading.why = reading.why or why


def _list_not_seen(reading: _Reading) -> Iterator[str]:
    if reading.failed:
        yield f"{reading.failed} lines about requests that cannot be read (the first: {reading.why})"
    if reading.refused:
        yield f"{reading.refused} requests used topics that the broker refused: these do not count as read or written"
    if reading.by_id:
        yield (
            f"names of {len(reading.by_id)} topics that the log has by id only: neither the cluster nor an inventory "
            "has them"
        )
    if reading.collector.left_out:
        yield f"{reading.collector.left_out} sightings of more clients, or more topics of one, than are kept"
    if reading.cut:
        yield reading.cut
