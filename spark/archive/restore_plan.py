"""What a restore does to which topic, and what keeps it from it. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from watershed.clusters.cluster_protocol import LogRange, TopicDescription
from watershed.replicator.copy.aligned.filling_configs import CLEANUP_POLICY, TIERED_STORAGE, UNLIMITED_RETENTION
from watershed.spark.archive.manifest import ArchivedPartition, ArchivedTopic, ArchiveManifest
from watershed.spark.errors import WrongUse
from watershed.topology.reserved_topics import explain_reserved_topic
from watershed.topology.selectors import TopicSelection
from watershed.topology.target_configs import MAX_MESSAGE_CONFIG, TIMESTAMP_TYPE_CONFIG

RestoreMode = Literal["equal", "mapped"]
_MIN_REPLICAS: Final = "min.insync.replicas"
# They name brokers of one cluster, or need tiered storage to be set up.
_OF_ONE_CLUSTER: Final = frozenset(
    {"follower.replication.throttled.replicas", "leader.replication.throttled.replicas", TIERED_STORAGE}
)


@dataclass(frozen=True, slots=True)
class RestoredTopic:
    """A topic of the archive and its name at the target. wanted: the configs that it has in the end; meanwhile: those
    that differ while it is restored."""

    archived: ArchivedTopic
    target: str
    wanted: Mapping[str, str]
    meanwhile: Mapping[str, str]

    def choose_create_configs(self) -> dict[str, str]:
        """What the topic is created with."""
        return {**self.wanted, **self.meanwhile}


def select_archived_topics(
    manifest: ArchiveManifest, selection: TopicSelection | None, renames: Sequence[str]
) -> list[tuple[ArchivedTopic, str]]:
    """(topic, its name at the target). selection: None takes all. renames: `OLD=NEW`, each with one `*` or with none;
    the first that fits counts. Raises WrongUse: nothing is selected, two topics get one name, a name is reserved."""
    rules = [_parse_rename(text) for text in renames]
    found = [topic for topic in manifest.topics if selection is None or selection.selects(topic.name)]
    if not found:
        held = ", ".join(topic.name for topic in manifest.topics) or "none"
        raise WrongUse(f"the archive holds no topic that --topics selects; it holds {held}")
    named = [(topic, _rename(topic.name, rules)) for topic in found]
    for topic, target in named:
        if why := explain_reserved_topic(target):
            raise WrongUse(f"topic {topic.name} would be restored as {target}, where nothing may be written: {why}")
        if others := [other.name for other, name in named if name == target and other is not topic]:
            raise WrongUse(f"topics {topic.name} and {others[0]} would both be restored as {target}; rename one")
    return named


def build_filled_configs(
    wanted: Mapping[str, str], filling: Mapping[str, str], *, largest_batch: int, broker_max_message: int
) -> dict[str, str]:
    """The configs that differ while a topic is restored. filling: as of `build_filling_configs`.

    Nothing may be deleted or compacted before everything is there, records keep their own times, and the topic takes
    the largest batch of the archive. What the archived configs say is in force once the restore has ended.
    """
    meanwhile = {**filling, CLEANUP_POLICY: "delete", **UNLIMITED_RETENTION}
    if wanted.get(TIMESTAMP_TYPE_CONFIG) != "CreateTime":
        meanwhile[TIMESTAMP_TYPE_CONFIG] = "CreateTime"
    if largest_batch > int(wanted.get(MAX_MESSAGE_CONFIG, broker_max_message)):
        meanwhile[MAX_MESSAGE_CONFIG] = str(largest_batch)
    return meanwhile


def choose_wanted_configs(archived: ArchivedTopic, withdrawn: Iterable[str], replicas: int) -> dict[str, str]:
    """The configs that a restored topic has in the end: the archived ones, without those that mean something on one
    cluster only, that the target does not know any more (`withdrawn`), or that ask for more replicas than there are."""
    left_out = {*_OF_ONE_CLUSTER, *withdrawn}
    if int(archived.configs.get(_MIN_REPLICAS, 1)) > replicas:
        left_out.add(_MIN_REPLICAS)
    return {key: value for key, value in archived.configs.items() if key not in left_out}


def explain_unusable_topic(archived: ArchivedTopic, there: TopicDescription) -> str:
    """Why an existing topic cannot take the archive; "" where its shape allows it."""
    if there.partitions != len(archived.partitions):
        return (
            f"topic {there.name} has {there.partitions} partitions, the archive holds {len(archived.partitions)} of "
            f"{archived.name}. Restore it under another name (--rename {archived.name}=NAME)"
        )
    return ""


def explain_unusable_log(topic: str, part: ArchivedPartition, log: LogRange, mode: RestoreMode, capacity: int) -> str:
    """Why a partition's log cannot be what an earlier restore of this archive left; "" where it can, if its records are
    the archive's. capacity: how many records the archive holds of the partition."""
    where, rename = f"{topic}-{part.partition}", "Restore it under another name (--rename), or delete the topic"
    if mode == "mapped":
        if log.end - log.start > capacity:
            return f"{where} holds {log.end - log.start} offsets, the archive {capacity} records. {rename}"
        return ""
    if log.end > part.end:
        return f"{where} ends at offset {log.end}, the archive at {part.end}: somebody else wrote to it. {rename}"
    if log.end > part.start > log.start:
        return f"{where} begins at offset {log.start}, the archive at {part.start}. {rename}"
    if part.start < log.start == log.end < part.end:
        return f"{where} is empty, but goes on at offset {log.end}: nothing shows that it was a restore. {rename}"
    return ""


def _parse_rename(text: str) -> tuple[str, str]:
    old, found, new = text.partition("=")
    if not found or not old or not new or old.count("*") != new.count("*") or old.count("*") > 1:
        raise WrongUse(f"--rename {text}: write OLD=NEW, with one * on both sides or on none (orders.*=copy.orders.*)")
    return old, new


def _rename(name: str, rules: Iterable[tuple[str, str]]) -> str:
    for old, new in rules:
        if "*" not in old:
            if name == old:
                return new
            continue
        front, _, back = old.partition("*")
        if name.startswith(front) and name.endswith(back) and len(name) >= len(front) + len(back):
            return new.replace("*", name[len(front) : len(name) - len(back)])
    return name
