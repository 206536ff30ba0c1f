"""The kinds, in the order in which they are compared and carried over: topics before what refers to them. And what
workers write for other tools while a flow runs."""

from __future__ import annotations

from typing import Final

from replicator.sync.acls import AclKind
from replicator.sync.checkpoints import CheckpointKind
from replicator.sync.configs import TopicConfigKind
from replicator.sync.copied_positions import CopiedPositionKind
from replicator.sync.groups import GroupKind
from replicator.sync.heartbeats import HeartbeatKind
from replicator.sync.protection import ProtectionKind
from replicator.sync.quotas import QuotaKind
from replicator.sync.schemas import SchemaKind
from replicator.sync.sync_kind import ReportingSyncKind, SyncKind
from replicator.sync.users import ScramUserKind

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
