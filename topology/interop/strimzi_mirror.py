"""One entry of a KafkaMirrorMaker2's `mirrors`: its connectors and patterns as the settings that they end up with."""

from __future__ import annotations

import re

from watershed.topology.interop import mm2_settings
from watershed.topology.interop.client_security import check_literal_secrets
from watershed.topology.interop.import_formats import find_child_node
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes, parse_java_boolean
from watershed.topology.interop.mm2_connector_merge import merge_connector_settings, state_heartbeats
from watershed.topology.interop.yaml_settings import (
    collect_settings,
    find_key_span,
    find_scalar_setting,
    report_unknown_fields,
)
from watershed.topology.yaml_tree import YamlNode

_PATTERNS = {
    "topicsPattern": "topics",
    "topicsExcludePattern": "topics.exclude",
    "topicsBlacklistPattern": "topics.exclude",
    "groupsPattern": "groups",
    "groupsExcludePattern": "groups.exclude",
    "groupsBlacklistPattern": "groups.exclude",
}
_CONSUMER = re.compile(r"(?:source\.)?consumer\.(?:auto\.offset\.reset|isolation\.level)")
_OPERATED = ("autoRestart", "listOffsets", "alterOffsets", "version")
# of a connector. Source: Strimzi's KafkaMirrorMaker2ConnectorSpec of v1beta2 and v1
_FIELDS = frozenset({"config", "tasksMax", "pause", "state", *_OPERATED})


def is_mirror_running(mirror: YamlNode) -> bool:
    """False if the source connector is paused or stopped."""
    main = find_child_node(mirror, "sourceConnector")
    state = find_scalar_setting(main, "state")
    return (
        main is not None
        and main.kind == "map"
        and not parse_java_boolean(find_scalar_setting(main, "pause"), False)
        and (state is None or state.text == "running")
    )


def is_mirror_enabled(mirror: YamlNode) -> bool:
    """False without a source connector, and if it is switched off (`enabled: false`): nothing is there to be paused."""
    main = find_child_node(mirror, "sourceConnector")
    return main is not None and parse_java_boolean(
        find_scalar_setting(find_child_node(main, "config"), "enabled"), True
    )


def collect_mirror_settings(mirror: YamlNode, notes: ImportNotes) -> dict[str, ForeignSetting]:
    """The effective settings of both connectors; a pattern of the mirror wins over a connector's config."""
    source = _connector(mirror, "sourceConnector", notes)
    checkpoint = _connector(mirror, "checkpointConnector", notes)
    heartbeat = _connector(mirror, "heartbeatConnector", notes)
    if find_child_node(mirror, "heartbeatConnector") is not None:
        heartbeat = state_heartbeats("heartbeatConnector", find_key_span(mirror, "heartbeatConnector")) | heartbeat
    for name, key in _PATTERNS.items():
        said = find_scalar_setting(mirror, name)
        if said is not None:
            if "Blacklist" in name:
                better = name.replace("Blacklist", "Exclude")
                notes.add_problem(
                    "SYN008", f"`{name}`: v1 does not know this name any more", said.key, f"write `{better}`"
                )
            (checkpoint if key.startswith("groups") else source)[key] = said
    for key in mm2_settings.SOURCE_CONSUMER_KEYS:
        if f"source.{key}" in source:
            source[key] = source[f"source.{key}"]
    return merge_connector_settings(
        source, checkpoint if find_child_node(mirror, "checkpointConnector") is not None else None, heartbeat, notes
    )


def _connector(mirror: YamlNode, name: str, notes: ImportNotes) -> dict[str, ForeignSetting]:
    """Its settings by the names of today; says what is unknown or stays behind."""
    node = find_child_node(mirror, name)
    if node is not None and node.kind != "map" and node.text not in ("", "null", "~"):
        notes.add_problem("SYN011", f"`{name}` is no mapping", node.span, f"write `{name}: {{}}` at least")
    config = collect_settings(find_child_node(node, "config"), name, notes)
    check_literal_secrets(list(config.values()), notes)
    for key, said in config.items():
        if not _CONSUMER.fullmatch(key):
            mm2_settings.note_connector_setting(mm2_settings.resolve_renamed_key(key, said, notes), said, notes)
    if node is not None and node.kind == "map":
        report_unknown_fields(node, name, _FIELDS | {"enabled"}, notes)
    if (enabled := find_scalar_setting(node, "enabled", name)) is not None:
        message = f"`{enabled.name}` has no effect: Strimzi drops it, and the connector runs whatever it says"
        help_ = f"say it under `{name}.config`, or leave the connector out, and import again"
        notes.add_problem("SYN003", message, enabled.key, help_)
    for key_node, _ in node.entries if node is not None else ():
        if key_node.text in _OPERATED:
            notes.add_not_carried(
                f"`{name}.{key_node.text}`", "the operator does it for Connect's connectors", key_node.span
            )
    out = {mm2_settings.RENAMED_MM2_KEYS.get(key, key): said for key, said in config.items()}
    tasks = find_scalar_setting(node, "tasksMax", name)
    return out if tasks is None else out | {"tasks.max": tasks}
