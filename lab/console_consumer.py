"""Kafka's own console consumers, so that a Java client reads, too: both group protocols, and share groups.

They are for records of text: a tab, a line end or a comma inside one cannot be told from what the tool puts between.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import Literal

from watershed.lab import class_data_archive
from watershed.lab.broker import LOG4J_CONFIG
from watershed.lab.errors import LabError
from watershed.lab.jars import fetch_jars, find_java

GroupProtocol = Literal["classic", "consumer", "share"]

_IDLE_MS = 30_000
_PATIENCE_S = 300.0
_NULL = "<null>"
_NO_HEADERS = "NO_HEADERS"
_TOOLS = {"classic": "ConsoleConsumer", "consumer": "ConsoleConsumer", "share": "ConsoleShareConsumer"}
_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xlog:disable")
_SHOWN = ("timestamp", "partition", "offset", "headers", "key")


@dataclass(frozen=True, slots=True)
class PrintedRecord:
    """One record as a Java consumer got it; timestamp in ms."""

    partition: int
    offset: int
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]
    key: bytes | None
    value: bytes | None


def consume_with_console(
    bootstrap: str, topic: str, group: str, protocol: GroupProtocol, count: int
) -> list[PrintedRecord]:
    """The next `count` records of the group, in the order read; what it has read is committed (acknowledged).

    `auto.offset.reset` is `none`: without a position nothing is read. Raises LabError when `count` records do not come
    within _IDLE_MS of silence; the message has the tool's own last line.
    """
    command = [find_java(), *_JVM, *class_data_archive.list_archive_options()]  # the brokers': a third of a start less
    command += [f"-Dlog4j2.configurationFile={LOG4J_CONFIG.with_name('log4j2-console.properties')}"]
    command += ["-cp", f"{fetch_jars()}/*", f"org.apache.kafka.tools.consumer.{_TOOLS[protocol]}"]
    command += ["--bootstrap-server", bootstrap, "--topic", topic, "--group", group]
    command += ["--max-messages", str(count), "--timeout-ms", str(_IDLE_MS)]
    if protocol != "share":
        command += ["--isolation-level", "read_committed"]
        command += ["--command-property", f"group.protocol={protocol}"]
        command += ["--command-property", "auto.offset.reset=none"]
    for field in _SHOWN:
        command += ["--formatter-property", f"print.{field}=true"]
    command += ["--formatter-property", f"null.literal={_NULL}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        raise LabError(f"the {protocol} consumer of group {group} did not end within {_PATIENCE_S:.0f} s") from None
    found = [parse_printed_record(line) for line in done.stdout.splitlines()]
    if done.returncode or len(found) != count:
        last = [line for line in done.stderr.splitlines() if "Processed a total" not in line][-3:]
        raise LabError(
            f"the {protocol} consumer of group {group} read {len(found)} of {count} records of {topic} and ended with "
            f"{done.returncode}: {' / '.join(last) or 'no output'}"
        )
    return found


def parse_printed_record(line: str) -> PrintedRecord:
    """`CreateTime:1  Partition:0  Offset:5  name:value,…  key  value`, with tabs between."""
    time, partition, offset, headers, key, value = line.split("\t")
    return PrintedRecord(
        partition=int(_after(partition, "Partition:")),
        offset=int(_after(offset, "Offset:")),
        timestamp=int(time.partition(":")[2]),
        headers=() if headers == _NO_HEADERS else tuple(map(_header, headers.split(","))),
        key=_bytes(key),
        value=_bytes(value),
    )


def _header(text: str) -> tuple[str, bytes | None]:
    name, _, value = text.partition(":")
    return name, _bytes(value)


def _bytes(text: str) -> bytes | None:
    return None if text == _NULL else text.encode()


def _after(text: str, label: str) -> str:
    if not text.startswith(label):
        raise LabError(f"the console consumer printed {text!r} where {label} was expected")
    return text.removeprefix(label)
