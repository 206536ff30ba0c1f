"""Kafka's own command line tools under the names that its distribution gives them: the lab has its jars only."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from watershed.lab import class_data_archive
from watershed.lab.broker import LOG4J_CONFIG
from watershed.lab.jars import fetch_jars, find_java

_CLASSES: Final = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}
_JVM: Final = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xlog:disable")


def write_kafka_tools(folder: Path) -> Path:
    """Programs that start the classes as the distribution's do: arguments and open files are passed on as they are.
    Returns the folder, for a search path. Raises ToolMissing, LabError where the jars cannot be had."""
    folder.mkdir(parents=True, exist_ok=True)
    log4j = LOG4J_CONFIG.with_name("log4j2-console.properties")
    options = [*_JVM, *class_data_archive.list_archive_options(), f"-Dlog4j2.configurationFile={log4j}"]
    quoted = " ".join(f'"{each}"' for each in [find_java(), *options, "-cp", f"{fetch_jars()}/*"])
    for name, tool in _CLASSES.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {quoted} {tool} "$@"\n')
        program.chmod(0o755)
    return folder
