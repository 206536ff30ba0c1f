"""The kinds, in the order in which they are compared and carried over: topics before what refers to them. And what
workers write for other tools while a flow runs."""

from __future__ import annotations

from typing import Final

from watershed.replicator.sync.acls import AclKind
from watershed.replicator.sync.checkpoints import CheckpointKind
from watershed.replicator.sync.configs import TopicConfigKind
from watershed.replicator.sync.copied_positions import CopiedPositionKind
from watershed.replicator.sync.groups import GroupKind
from watershed.replicator.sync.heartbeats import HeartbeatKind
from watershed.replicator.sync.protection import ProtectionKind
from watershed.replicator.sync.quotas import QuotaKind
from watershed.replicator.sync.schemas import SchemaKind
from watershed.replicator.sync.sync_kind import ReportingSyncKind, SyncKind
from watershed.replicator.sync.users import ScramUserKind

SYNC_KINDS: Final[tuple[SyncKind, ...]] = (
    TopicConfigKind(),
    ScramUserKind(),
    ProtectionKind(),  # before rights: who is kept out is, before anybody gets one
    AclKind(),
    QuotaKind(),
    SchemaKind(),
    GroupKind(),
)
KEPT_KINDS: Final[tuple[SyncKind | ReportingSyncKind, ...]] = (
    *SYNC_KINDS,
    HeartbeatKind(),
    CheckpointKind(),
    CopiedPositionKind(),
)
