"""One entry of a KafkaMirrorMaker2's `mirrors`: its connectors and patterns as the settings that they end up with."""

from __future__ import annotations

import re

from topology.interop import keys
from topology.interop.formats import child
from topology.interop.join import joined
from topology.interop.said import Notes, Said, true
from topology.interop.security import literal_secrets
from topology.interop.tree import key_span, scalar, settings_of
from topology.nodes import Node

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


def running_in(mirror: Node) -> bool:
    main = child(mirror, "sourceConnector")
    state = scalar(main, "state")
    if not true(scalar(child(main, "config"), "enabled"), True):
        return False
    return (
        main is not None
        and main.kind == "map"
        and not true(scalar(main, "pause"), False)
        and (state is None or state.text == "running")
    )


def config_in(mirror: Node, notes: Notes) -> dict[str, Said]:
    """The effective settings of both connectors; a pattern of the mirror wins over a connector's config."""
    source = _connector(mirror, "sourceConnector", notes)
    checkpoint = _connector(mirror, "checkpointConnector", notes)
    _connector(mirror, "heartbeatConnector", notes)
    if child(mirror, "heartbeatConnector") is not None:
        why = "`topology status` shows lag and progress itself; there are no heartbeats"
        notes.leave("`heartbeatConnector`", why, key_span(mirror, "heartbeatConnector"))
    for name, key in _PATTERNS.items():
        said = scalar(mirror, name)
        if said is not None:
            if "Blacklist" in name:
                better = name.replace("Blacklist", "Exclude")
                notes.say("SYN008", f"`{name}`: v1 does not know this name any more", said.key, f"write `{better}`")
            (checkpoint if key.startswith("groups") else source)[key] = said
    for key in ("consumer.auto.offset.reset", "consumer.isolation.level"):
        if f"source.{key}" in source:
            source[key] = source[f"source.{key}"]
    return joined(source, checkpoint if child(mirror, "checkpointConnector") is not None else None, notes)


def _connector(mirror: Node, name: str, notes: Notes) -> dict[str, Said]:
    """Its settings by the names of today; says what is unknown or stays behind."""
    node = child(mirror, name)
    if node is not None and node.kind != "map" and node.text not in ("", "null", "~"):
        notes.say("SYN011", f"`{name}` is no mapping", node.span, f"write `{name}: {{}}` at least")
    config = settings_of(child(node, "config"), name, notes)
    literal_secrets(list(config.values()), notes)
    for key, said in config.items():
        if not _CONSUMER.fullmatch(key):
            _judge(keys.today(key, said, notes), said, notes)
    for key_node, _ in node.entries if node is not None else ():
        if key_node.text in _OPERATED:
            notes.leave(f"`{name}.{key_node.text}`", "the operator does it for Connect's connectors", key_node.span)
    out = {keys.RENAMED.get(key, key): said for key, said in config.items()}
    tasks = scalar(node, "tasksMax", name)
    return out if tasks is None else out | {"tasks.max": tasks}


def _judge(key: str, said: Said, notes: Notes) -> None:
    why = keys.why_left(key)
    if why is None and key in keys.CARRIED:
        return
    if why is None:
        near = keys.meant(key)
        message = f"`{said.name}` is no known setting of MirrorMaker"
        if near is not None:
            notes.say("SYN003", message, said.key, f"did you mean `{near}`?")
        else:
            notes.say("SYN003", message, said.key, severity="warning")
        why = "an unknown setting"
    notes.leave(f"`{said.name}`", why, said.span)
