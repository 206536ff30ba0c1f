"""The Kafka releases that the lab starts, and what is particular to each: data only.

What a release needs was found by starting it on Java 17; which server properties it knows, by asking its own
`KafkaConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from watershed.lab.errors import LabError

DEFAULT_RELEASE = "4.3.1"
RELEASES_POM = Path(__file__).with_name("releases") / "pom.xml"
ZOOKEEPER_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


@dataclass(frozen=True, slots=True)
class LogLibrary:
    """What writes a broker's log: its Maven coordinates, and the Java option that names the configuration."""

    group: str
    artifact: str
    version: str
    option: str  # ends with the configuration's path
    configuration: Path


@dataclass(frozen=True, slots=True)
class KafkaRelease:
    """One release. `unknown`: server properties of the lab's usual ones that it does not know."""

    version: str
    scala: str
    zookeeper: str | None  # the version of the ZooKeeper that it is started with; None: KRaft
    log: LogLibrary
    unknown: frozenset[str] = frozenset()
    main: str = "kafka.Kafka"
    formatter: str = "kafka.tools.StorageTool"  # of a KRaft broker
    java_options: tuple[str, ...] = ()
    names_log_folders: bool = True  # meta.properties has a directory.id (KIP-858)


_BESIDE = Path(__file__)
_LOG4J2 = LogLibrary(
    "org.apache.logging.log4j",
    "log4j-slf4j-impl",
    "2.25.4",
    "-Dlog4j2.configurationFile=",
    _BESIDE.with_name("log4j2.properties"),
)
_RELOAD4J = LogLibrary(
    "org.slf4j", "slf4j-reload4j", "1.7.36", "-Dlog4j.configuration=file:", _BESIDE.with_name("log4j.properties")
)

_SINCE_4_0 = frozenset(
    f"share.coordinator.state.topic.{each}" for each in ("replication.factor", "num.partitions", "min.isr")
)
_AFTER_3_6 = _SINCE_4_0 | {"log.initial.task.delay.ms"}
_OF_KRAFT = {
    "process.roles",
    "node.id",
    "controller.quorum.voters",
    "controller.listener.names",
    "broker.session.timeout.ms",
    "broker.heartbeat.interval.ms",
    "metadata.max.idle.interval.ms",
}


def _with_zookeeper(version: str, scala: str, zookeeper: str) -> KafkaRelease:
    quiet = ("-Dzookeeper.jmx.log4j.disable=true",)  # would look for log4j's own classes, which reload4j has not all
    return KafkaRelease(version, scala, zookeeper, _RELOAD4J, _AFTER_3_6 | _OF_KRAFT, java_options=quiet)


# ZooKeeper 3.4.13, which 2.0 and 2.1 come with, does not resolve names on Java 17: 3.4.10 instead.
_TABLE = (
    _with_zookeeper("0.11.0.3", "2.12", "3.4.10"),
    _with_zookeeper("1.1.1", "2.12", "3.4.10"),
    _with_zookeeper("2.1.1", "2.12", "3.4.10"),
    _with_zookeeper("2.4.1", "2.13", "3.5.7"),
    _with_zookeeper("2.8.2", "2.13", "3.5.9"),
    KafkaRelease("3.3.2", "2.13", None, _RELOAD4J, _AFTER_3_6, names_log_folders=False),
    KafkaRelease("3.6.2", "2.13", None, _RELOAD4J, _AFTER_3_6, names_log_folders=False),
    KafkaRelease("3.9.1", "2.13", None, _RELOAD4J, _SINCE_4_0),
    KafkaRelease("4.0.0", "2.13", None, _LOG4J2),
    KafkaRelease("4.3.1", "2.13", None, _LOG4J2),  # its jars: lab/pom.xml, with Kafka's tools and MirrorMaker
)
RELEASES = {release.version: release for release in _TABLE}


def find_release(version: str) -> KafkaRelease:
    """Raises LabError when the lab does not offer it; the message lists those that it does."""
    try:
        return RELEASES[version]
    except KeyError:
        raise LabError(f"the lab has no Kafka {version!r}; it has {', '.join(RELEASES)}") from None


def name_maven_properties(release: KafkaRelease) -> dict[str, str]:
    """What the POM of the releases is given."""
    return {
        "kafka.version": release.version,
        "scala.version": release.scala,
        "zookeeper.version": release.zookeeper or "3.8.4",  # some KRaft releases bring the library
        "logging.group": release.log.group,
        "logging.artifact": release.log.artifact,
        "logging.version": release.log.version,
    }
