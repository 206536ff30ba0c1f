"""The source and the checkpoint connector of one pair are one flow: whose settings count for what, and where the two
disagree, which MirrorMaker does not notice."""

from __future__ import annotations

import re
from collections.abc import Mapping

from watershed.topology.finding import FileSpan, Label
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes
from watershed.topology.interop.mm2_pair import is_identity_policy

# MirrorCheckpointConfig; all else that is carried over belongs to the source connector
_CHECKPOINT = re.compile(r"(?:sync\.group\.offsets|groups|emit\.checkpoints)(?:\..+)?")
_HEARTBEATS = "emit.heartbeats."  # MirrorHeartbeatConfig
# must be equal in both, which nothing verifies: key -> (its default, what goes wrong)
_NAMES = "offsets are translated for topics that have other names"
_SEPARATOR = "replication.policy.separator"
# MirrorMaker's own topics are called with it, also under a policy that keeps names (KIP-690)
_INTERNAL = "the checkpoint connector waits for offset syncs in a topic that nobody writes; topics keep their names"
_SHARED = {
    "replication.policy.class": ("org.apache.kafka.connect.mirror.DefaultReplicationPolicy", _NAMES),
    _SEPARATOR: (".", _NAMES),
    "offset-syncs.topic.location": (
        "source",
        "the checkpoint connector waits for offset syncs where nobody writes them",
    ),
}


def merge_connector_settings(
    source: Mapping[str, ForeignSetting],
    checkpoint: Mapping[str, ForeignSetting] | None,
    heartbeat: Mapping[str, ForeignSetting],
    notes: ImportNotes,
) -> dict[str, ForeignSetting]:
    """The effective settings. Without a checkpoint connector no group offsets are written. heartbeat: of the heartbeat
    connector; nothing where there is none."""
    out = {key: said for key, said in source.items() if not _CHECKPOINT.fullmatch(key)}
    out = {key: said for key, said in out.items() if not key.startswith(_HEARTBEATS)}
    out |= {key: said for key, said in heartbeat.items() if key.startswith(_HEARTBEATS)}
    if checkpoint is None:
        return out
    for key, (default, harm) in _SHARED.items():
        one, other = source.get(key), checkpoint.get(key)
        if (one.text.strip() if one else default) != (other.text.strip() if other else default):
            place, more = (one or other), (other if one else None)
            assert place is not None, "one of them says it"
            if key == _SEPARATOR and all(is_identity_policy(each) for each in (source, checkpoint)):
                harm = _INTERNAL
            notes.add_problem(
                "NAM310",
                f"`{key}` differs between the source and the checkpoint connector: {harm}",
                place.span,
                "say the same in both",
                more=(Label(more.span, "the other connector"),) if more is not None else (),
            )
    return out | {key: said for key, said in checkpoint.items() if _CHECKPOINT.fullmatch(key)}


def state_heartbeats(name: str, where: FileSpan) -> dict[str, ForeignSetting]:
    """What the presence of a heartbeat connector says: heartbeats are written, unless its own settings differ."""
    return {"emit.heartbeats.enabled": ForeignSetting(name, "true", where, where)}
