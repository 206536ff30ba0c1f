"""A MirrorMaker 2 pair of clusters: the settings in force for its connectors, whatever form they were written in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from watershed.topology.finding import FileSpan
from watershed.topology.interop.import_notes import ForeignSetting

DEFAULT_REPLICATION_POLICY = "DefaultReplicationPolicy"
IDENTITY_REPLICATION_POLICY = "IdentityReplicationPolicy"


def is_identity_policy(config: Mapping[str, ForeignSetting]) -> bool:
    """Whether the settings name the policy that keeps names, in whichever package it is."""
    said = config.get("replication.policy.class")
    return said is not None and said.text.strip().rpartition(".")[2] == IDENTITY_REPLICATION_POLICY


@dataclass(frozen=True, slots=True)
class MirrorCluster:
    """A cluster by its foreign name and its alias in the topology."""

    name: str
    alias: str


@dataclass(frozen=True, slots=True)
class MirrorPair:
    """`config` has the effective connector settings by plain key, those of the source's consumer as `consumer.…`.
    `where` is the line that makes the flow. others: all foreign names of clusters; returns: whether records that this
    flow brought to its target can come back to its source; has_checkpoints: whether a checkpoint connector runs."""

    source: MirrorCluster
    target: MirrorCluster
    config: Mapping[str, ForeignSetting]
    where: FileSpan
    running: bool = True
    others: tuple[str, ...] = ()
    returns: bool = False
    lines: tuple[str, ...] = ()
    has_checkpoints: bool = True

    @property
    def id(self) -> str:
        """The id of the flow that the pair becomes."""
        return f"{self.source.alias}-to-{self.target.alias}"

    @property
    def policy(self) -> str:
        """Class name of the replication policy, without its package."""
        said = self.config.get("replication.policy.class")
        return said.text.strip().rpartition(".")[2] if said is not None else DEFAULT_REPLICATION_POLICY

    @property
    def separator(self) -> str:
        """Text between the source alias and the topic in a target name."""
        said = self.config.get("replication.policy.separator")
        return said.text if said is not None else "."

    @property
    def alias(self) -> str:
        """What the default policy puts before a topic's name: `source.cluster.alias`, or the cluster's name."""
        said = self.config.get("source.cluster.alias")
        return said.text.strip() if said is not None else self.source.name

    @property
    def identity(self) -> bool:
        """True if target topics keep the names of their sources: by the policy, or because neither an alias nor a
        separator stands before them (how it was done before Kafka 3.0 had the policy)."""
        return self.policy == IDENTITY_REPLICATION_POLICY or (
            self.policy == DEFAULT_REPLICATION_POLICY and not self.alias and not self.separator
        )
