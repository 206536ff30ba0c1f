"""What MirrorMaker 2 writes beside its copies, as `compatibility` of a flow, and back.

Only what a file says is carried over, although MirrorMaker writes all three unless it is told not to: most files say
nothing, and nothing reads the topics. Source of the defaults: apache/kafka MirrorConnectorConfig,
MirrorCheckpointConfig, MirrorHeartbeatConfig.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from watershed.topology.interop.import_notes import ImportNotes, parse_java_boolean
from watershed.topology.interop.import_numbers import parse_setting_number, render_seconds
from watershed.topology.interop.mm2_pair import MirrorPair
from watershed.topology.language.scalars import TOPIC_TEXT
from watershed.topology.mirror_compatibility import MirrorCompatibility
from watershed.topology.model import Flow

_SEPARATOR = re.compile(r"[._-]{1,3}")  # as `naming.separator` has them


def build_pair_compatibility(pair: MirrorPair, notes: ImportNotes) -> dict[str, Any]:
    """`{"compatibility": …}`; empty where the pair's settings say nothing of it."""
    config, out = pair.config, dict[str, Any]()
    for word, key in (("heartbeat", "emit.heartbeats"), ("checkpoint", "emit.checkpoints")):
        enabled, interval = config.get(f"{key}.enabled"), config.get(f"{key}.interval.seconds")
        if (enabled is None and interval is None) or not parse_java_boolean(enabled, True):
            continue
        out[f"{word}s"] = True
        seconds = parse_setting_number(interval, notes)
        if seconds is not None and seconds > 0:
            out[f"{word}_interval"] = render_seconds(seconds)
    enabled, location = config.get("emit.offset-syncs.enabled"), config.get("offset-syncs.topic.location")
    if (enabled is not None or location is not None) and parse_java_boolean(enabled, True):
        out["offset_syncs"] = True
        if location is not None and location.text.strip().lower() in ("source", "target"):
            out["offset_syncs_at"] = location.text.strip().lower()
    if not out:
        return {}
    others = {each.alias: each.name for each in (pair.source, pair.target) if each.alias != each.name}
    if others and all(map(TOPIC_TEXT.fullmatch, others.values())):
        out["aliases"] = others
    if pair.separator != "." and _SEPARATOR.fullmatch(pair.separator):
        out["separator"] = pair.separator
    return {"compatibility": {"mirrormaker": out}}


def build_compatibility_settings(flow: Flow) -> Iterator[tuple[str, str]]:
    """The connector settings (key, value) that ask MirrorMaker for the same, without those that it has by itself."""
    said = flow.plan.compatibility or MirrorCompatibility(flow.source, flow.target)
    if said.heartbeats:
        yield "emit.heartbeats.enabled", "true"
        yield "emit.heartbeats.interval.seconds", str(max(1, said.heartbeat_interval_ms // 1000))
    if said.checkpoints:
        yield "emit.checkpoints.enabled", "true"
        yield "emit.checkpoints.interval.seconds", str(max(1, said.checkpoint_interval_ms // 1000))
    if said.offset_syncs is not None:
        yield "offset-syncs.topic.location", said.offset_syncs
