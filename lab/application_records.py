"""What an application acknowledges or processes, one fixed-size entry a record, in a file of its directory.

    <directory>/records.bin    32-byte entries, append-only, little-endian (ENTRY)
    <directory>/words.jsonl    the strings that entries point to: [kind, index, text], kinds: series, topic, cluster
    <directory>/app.json       name, role, topics, group

A file that ends in mid-entry (the application was killed) is read up to the last whole entry.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

ENTRY_FORMAT = struct.Struct("<HBBIIIqq")  # series, topic, cluster, partition, key, number, offset, time (ms)
ENTRY_FIELDS = ["series", "topic", "cluster", "partition", "key", "number", "offset", "time"]
ENTRY_DTYPES = ["<u2", "u1", "u1", "<u4", "<u4", "<u4", "<i8", "<i8"]


class ApplicationRecord(NamedTuple):
    """One entry with its words. `app` and `origin` name the series; `topic` is where it was written or read."""

    app: str
    origin: str
    key: int
    number: int
    topic: str
    partition: int
    offset: int
    cluster: str
    time_ms: int


@dataclass(slots=True)
class ApplicationRecordFile:
    """An open file of entries; for one thread. `count` includes what earlier runs wrote."""

    directory: Path
    count: int = 0
    _entries: bytearray = field(default_factory=bytearray)
    _words: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / "records.bin"
        path.touch()
        self.count = path.stat().st_size // ENTRY_FORMAT.size
        with path.open("r+b") as file:
            file.truncate(self.count * ENTRY_FORMAT.size)
        words = read_words(self.directory)
        self._words = {(kind, text): index for kind, texts in words.items() for index, text in enumerate(texts)}

    def add(self, record: ApplicationRecord) -> None:
        """Remembers the record; `flush` writes it."""
        self._entries += ENTRY_FORMAT.pack(
            self._word("series", f"{record.app} {record.origin}"),
            self._word("topic", record.topic),
            self._word("cluster", record.cluster),
            record.partition,
            record.key,
            record.number,
            record.offset,
            record.time_ms,
        )
        self.count += 1

    def flush(self) -> None:
        """Hands what was added to the operating system: it survives the end of this process."""
        if self._entries:
            with (self.directory / "records.bin").open("ab") as file:
                file.write(self._entries)
            self._entries.clear()

    def _word(self, kind: str, text: str) -> int:
        index = self._words.get((kind, text))
        if index is None:
            index = sum(1 for known, _ in self._words if known == kind)
            with (self.directory / "words.jsonl").open("a") as file:
                file.write(json.dumps([kind, index, text]) + "\n")
            self._words[kind, text] = index
        return index


def read_words(directory: Path) -> dict[str, list[str]]:
    """The strings by kind, in the order of their indices."""
    words: dict[str, list[str]] = {"series": [], "topic": [], "cluster": []}
    path = directory / "words.jsonl"
    for line in path.read_text().splitlines() if path.exists() else ():
        kind, _, text = json.loads(line)
        words[kind].append(text)
    return words


def read_application_records(directory: Path) -> Iterator[ApplicationRecord]:
    """All whole entries in the order of writing. For tests and people; `lab.account` reads them as an array."""
    words = read_words(directory)
    data = (directory / "records.bin").read_bytes()
    usable = memoryview(data)[: len(data) // ENTRY_FORMAT.size * ENTRY_FORMAT.size]
    for series, topic, cluster, partition, key, number, offset, time_ms in ENTRY_FORMAT.iter_unpack(usable):
        app, origin = words["series"][series].split(" ")
        place = (words["topic"][topic], partition, offset, words["cluster"][cluster])
        yield ApplicationRecord(app, origin, key, number, *place, time_ms)


def write_application_description(directory: Path, application: Mapping[str, Any]) -> None:
    """Writes app.json: name, role (producer or consumer), topics, group."""
    directory.mkdir(parents=True, exist_ok=True)
    scratch = directory / "app.json.new"
    scratch.write_text(json.dumps(application, indent=1))
    scratch.replace(directory / "app.json")


def read_application_description(directory: Path) -> dict[str, Any]:
    """What `describe` wrote. Raises FileNotFoundError."""
    read: dict[str, Any] = json.loads((directory / "app.json").read_text())
    return read
