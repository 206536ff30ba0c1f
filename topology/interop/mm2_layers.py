"""The layers of a MirrorMaker 2 properties file: top level, `a.…`, `a->b.…`, and what stands in a layer that nobody
reads. Source: apache/kafka MirrorMakerConfig.java."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from watershed.topology.interop import mm2_settings
from watershed.topology.interop.import_notes import ForeignSetting, ImportNotes
from watershed.topology.spelling import suggest_word

# what the worker of a->b reads at top level (MirrorMakerConfig.workerConfig)
_WORKER = (
    "offset.storage",
    "config.storage",
    "status.storage",
    "key.converter",
    "value.converter",
    "header.converter",
    "task",
    "worker",
    "replication.policy",
    "config.providers",
    "dedicated.mode",
    "listeners",
    "rest.",
    "admin.listeners",
    "plugin.",
)
_CLIENTS = ("producer.", "consumer.", "admin.")
_CONNECTOR = ("consumer.poll.timeout.ms", "admin.timeout.ms")


@dataclass(slots=True)
class SettingLayers:
    """Every setting by the layer it stands in."""

    top: dict[str, ForeignSetting] = field(default_factory=dict)
    clusters: dict[str, dict[str, ForeignSetting]] = field(default_factory=dict)
    pairs: dict[tuple[str, str], dict[str, ForeignSetting]] = field(default_factory=dict)


def split_into_layers(said: list[ForeignSetting], names: tuple[str, ...], notes: ImportNotes) -> SettingLayers:
    """Sorts settings into top level, clusters and pairs. Keys that belong to none are reported. names: the clusters
    of the file."""
    layers = SettingLayers()
    ordered = sorted(names, key=len, reverse=True)
    for each in said:
        if each.name == "clusters":
            continue
        if each.name in mm2_settings.ALIAS_KEYS:  # before clusters that are called `source` and `target`
            layers.top[each.name] = each
            continue
        if each.text.startswith("->") or each.name.endswith("->"):
            notes.add_problem(
                "SYN003",
                f"the key of this line is `{each.name}`: a key ends at the first space",
                each.key,
                "write `a->b.enabled` without spaces",
            )
        elif "->" in each.name:
            _into_pair(each, ordered, layers, notes)
        else:
            owner = next((name for name in ordered if each.name.startswith(f"{name}.")), None)
            if owner is not None:
                _into_cluster(each, owner, each.name[len(owner) + 1 :], layers, notes)
            else:
                _into_top(each, ordered, layers, notes)
    return layers


def _into_pair(said: ForeignSetting, names: list[str], layers: SettingLayers, notes: ImportNotes) -> None:
    source, _, rest = said.name.partition("->")
    target = next((name for name in names if rest.startswith(f"{name}.")), None)
    if target is None:
        dots = [match.start() for match in re.finditer(r"\.", rest)]
        cut = next(
            (dot for dot in dots if mm2_settings.is_known_mm2_key(rest[dot + 1 :])), dots[0] if dots else len(rest)
        )
        target = rest[:cut]
    key = rest[len(target) + 1 :]
    for alias in (source, target):
        if alias not in names:
            near = suggest_word(alias, names)
            if near is not None:
                meant = f"{near if alias == source else source}->{near if alias == target else target}.{key}"
                message = f"`{said.name}` has no effect: there is no cluster `{alias}`"
                notes.add_problem("SYN003", message, said.key, f"did you mean `{meant}`?")
            else:
                message = f"`{said.name}` has no effect: `clusters` does not name `{alias}`"
                notes.add_problem("CLU101", message, said.key, f"declared: {', '.join(sorted(names))}")
            return
    if source == target:
        notes.add_problem("CLU107", f"`{said.name}`: a cluster does not copy to itself", said.key, ids=(source,))
        return
    plain = mm2_settings.resolve_renamed_key(key, said, notes)
    if not _check_pair_setting(said, plain, notes):
        plain = said.name  # unknown, but its line still shows that the file declares this pair
    own = layers.pairs.setdefault((source, target), {})
    if plain == key or plain not in own:  # of an old and a new name the new one counts
        own[plain] = said


def _into_cluster(said: ForeignSetting, owner: str, key: str, layers: SettingLayers, notes: ImportNotes) -> None:
    layers.clusters.setdefault(owner, {})[key] = said
    connector = key in mm2_settings.CARRIED_MM2_KEYS and key not in ("exactly.once.source.support", "name")
    if connector and not key.startswith(_CLIENTS) and not mm2_settings.is_connection_key(key):
        notes.add_problem(
            "SYN003",
            f"`{said.name}` has no effect: MirrorMaker reads `{key}` at top level or for a pair of clusters",
            said.key,
            f"write `{key}`, or `{owner}->OTHER.{key}`",
            severity="warning",
        )
        return
    for client in _CLIENTS:
        inner = key.removeprefix(client)
        if inner != key and (mm2_settings.is_connection_key(inner)):
            notes.add_not_carried(
                f"`{said.name}`", "a cluster has one way to connect, for all of its clients", said.span
            )
            return
    if not key.startswith(_CLIENTS) and not mm2_settings.is_known_mm2_key(key):
        mm2_settings.report_unknown_setting(key, said, notes)
        return
    if key in (*mm2_settings.SOURCE_CONSUMER_KEYS, "exactly.once.source.support"):
        return
    why = mm2_settings.explain_setting(key, said)
    if why is not None:
        notes.add_not_carried(f"`{said.name}`", why, said.span)


def _into_top(said: ForeignSetting, names: list[str], layers: SettingLayers, notes: ImportNotes) -> None:
    key = mm2_settings.resolve_renamed_key(said.name, said, notes)
    read_here = key in _CONNECTOR or key.startswith(_WORKER)
    if key.startswith("consumer.override."):
        mm2_settings.report_consumer_override(said, key, "CLUSTER", notes)
        return
    if (not read_here and key.startswith((*_CLIENTS, "source.", "target."))) or key == "exactly.once.source.support":
        clue = "CLUSTER." + re.sub(r"^(?:source|target)\.(?:cluster\.)?", "", said.name)
        notes.add_problem(
            "SYN003",
            f"`{said.name}` has no effect at top level",
            said.key,
            f"write `{clue}`, with the cluster's alias in front",
            severity="warning",
        )
        return
    if mm2_settings.is_known_mm2_key(key):
        if key in mm2_settings.CARRIED_MM2_KEYS or mm2_settings.is_connection_key(key):
            layers.top[key] = said if said.name == key else layers.top.get(key, said)
        why = mm2_settings.explain_setting(key, said)
        if why is not None:
            layers.top[key] = said
            notes.add_not_carried(f"`{said.name}`", why, said.span)
        return
    for dot in (match.start() for match in re.finditer(r"\.", said.name)):
        head, rest = said.name[:dot], said.name[dot + 1 :]
        if mm2_settings.is_connection_key(rest) or (
            rest.startswith(_CLIENTS) and not mm2_settings.is_known_mm2_key(head)
        ):
            near = suggest_word(head, names)
            notes.add_problem(
                "CLU101",
                f"`{said.name}` has no effect: `clusters` does not name `{head}`",
                said.key,
                (f"did you mean `{near}`? " if near else "") + f"declared: {', '.join(sorted(names))}",
            )
            return
    mm2_settings.report_unknown_setting(key, said, notes)


def _check_pair_setting(said: ForeignSetting, key: str, notes: ImportNotes) -> bool:
    """Whether a setting of a pair is known; says what is left behind."""
    inner = re.sub(r"^(?:source|target)\.(?:cluster\.)?", "", key)
    if (
        not mm2_settings.is_known_mm2_key(key)
        and not mm2_settings.is_known_mm2_key(inner)
        and not inner.startswith(_CLIENTS)
    ):
        mm2_settings.report_unknown_setting(key, said, notes)
        return False
    if inner in mm2_settings.SOURCE_CONSUMER_KEYS:
        return True
    if inner.startswith("consumer.override."):
        mm2_settings.report_consumer_override(said, inner, "source", notes)
        return True
    why = mm2_settings.explain_setting(key, said)
    carried = key in mm2_settings.CARRIED_MM2_KEYS or mm2_settings.is_as_always(key, said)
    if why is None and not carried:
        why = "how to connect is said once for a cluster, not for each of its flows"
    if why is not None:
        notes.add_not_carried(f"`{said.name}`", why, said.span)
    return True
