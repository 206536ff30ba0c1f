"""One MirrorMaker 2 pair of clusters, from the settings that its connectors end up with, as a flow.

The three foreign forms (properties, Strimzi, connector JSON) differ in where a setting stands; what it means is here.
Source of every default: apache/kafka connect/mirror, MirrorSourceConfig and MirrorCheckpointConfig.
"""

from __future__ import annotations

import re
from typing import Any

from watershed.topology.interop.import_notes import ImportNotes, parse_java_boolean
from watershed.topology.interop.import_numbers import parse_setting_number, render_seconds, report_slow_discovery
from watershed.topology.interop.imported_topology import ImportedFlow
from watershed.topology.interop.mm2_compatibility import build_pair_compatibility
from watershed.topology.interop.mm2_pair import DEFAULT_REPLICATION_POLICY, MirrorPair
from watershed.topology.interop.mm2_selection import MirrorSelection, build_group_selectors, build_mirror_selection
from watershed.topology.resolver import DEFAULT_EXCLUDED_CONFIGS

_LEGACY_POLICY = "LegacyReplicationPolicy"
# Kafka's own policy, and that of strimzi/mirror-maker-2-extensions for the releases before it
_KNOWN_PACKAGES = ("org.apache.kafka.connect.mirror.", "io.strimzi.kafka.connect.mirror.", "IdentityReplicationPolicy")
_KEY = re.compile(r"[a-z][a-z0-9.]*")


def build_mirror_flow(pair: MirrorPair, notes: ImportNotes) -> ImportedFlow:
    """Never raises: what cannot be said goes to the notes."""
    settings: dict[str, Any] = {}
    settings |= _naming(pair, notes)
    if not pair.running:
        settings["state"] = "paused"
    settings |= _delivery(pair, notes)
    settings |= _replication_factor(pair, notes)
    sync = _sync(pair, notes)
    if sync:
        settings["sync"] = sync
    settings |= _workers(pair, notes)
    chosen: MirrorSelection = build_mirror_selection(pair, notes)
    settings |= build_pair_compatibility(pair, notes)
    if chosen.allow_internal:
        settings["topics"] = {"allow_internal": True}
    return ImportedFlow(pair.source.alias, pair.target.alias, chosen.include, chosen.exclude, settings=settings)


def _naming(pair: MirrorPair, notes: ImportNotes) -> dict[str, Any]:
    """`template` without its text where a class names the topics: lint refuses it (NAM305) until somebody writes it."""
    said = pair.config.get("replication.policy.class")
    if pair.identity:
        if said is not None and not said.text.strip().startswith(_KNOWN_PACKAGES):
            why = "a class that cannot be read; taken at its name: topics keep theirs"
            notes.add_not_carried(f"`{said.name}` = {said.text.strip()}", why, said.span)
        return {"naming": {"policy": "identity"}}
    if said is not None and pair.policy not in (DEFAULT_REPLICATION_POLICY, _LEGACY_POLICY):
        notes.add_not_carried(
            f"`{said.name}` = {pair.policy}",
            "a class that names topics cannot be read: fill in `naming`; the flow is paused until then",
            said.span,
        )
        return {"naming": {"policy": "template"}, "state": "paused"}
    separator = pair.separator
    place = pair.config.get("replication.policy.separator")
    if place is not None and re.fullmatch(r"[a-zA-Z0-9._-]{0,20}", separator) is None:
        notes.add_problem(
            "NAM302", f"`{place.name}`: a topic's name cannot hold this separator", place.span, "use `.`, `-` or `_`"
        )
        separator = "."
    if separator and separator in pair.alias:
        notes.add_problem(
            "NAM309",
            f"the alias `{pair.alias}` holds the separator `{separator}`: MirrorMaker takes "
            f"`{pair.alias.partition(separator)[0]}` for the origin of `{pair.alias}{separator}…`",
            pair.where,
            "choose another separator, or an alias without it",
            ids=(pair.source.alias,),
        )
    before = pair.alias + separator
    if pair.alias == pair.source.alias and re.fullmatch(r"[._-]{1,3}", separator):
        return {"naming": {"policy": "prefix"} | ({} if separator == "." else {"separator": separator})}
    if re.fullmatch(r"[a-zA-Z0-9._-]+", before) is None:
        notes.add_problem(
            "NAM302",
            f"the alias `{pair.alias}` cannot be part of a topic's name",
            pair.where,
            "choose an alias of letters, digits, `-` and `_`",
        )
        before = pair.source.alias + separator
    return {"naming": {"policy": "template", "template": before + "{topic}"}}


def _delivery(pair: MirrorPair, notes: ImportNotes) -> dict[str, Any]:
    out: dict[str, Any] = {}
    start, isolation = pair.config.get("consumer.auto.offset.reset"), pair.config.get("consumer.isolation.level")
    once = pair.config.get("exactly.once.source.support") or pair.config.get("exactly.once.support")
    exact = once is not None and once.text.strip().lower() in ("enabled", "required")
    if exact:
        out["semantics"] = "exactly_once"
    if isolation is not None and isolation.text.strip().lower() in ("read_committed", "read_uncommitted"):
        out["isolation"] = isolation.text.strip().lower()
    if exact and once is not None and out.get("isolation") != "read_committed":
        notes.add_problem(
            "SYC515",
            f"{pair.source.name}->{pair.target.name}: exactly once, but the source's consumer reads records of aborted "
            "transactions, and they become committed at the target",
            once.span,
            # only the properties file has a layer for each cluster
            f"set `{pair.source.name if pair.lines else 'source'}.consumer.isolation.level = read_committed`",
            ids=(pair.id,),
        )
        out["isolation"] = "read_committed"
    if start is not None and start.text.strip().lower() in ("earliest", "latest"):
        out["start"] = start.text.strip().lower()
    elif start is not None:
        why = "a flow starts `earliest`, `latest`, or where `delivery.start` names an instant; write the instant there"
        notes.add_not_carried(f"`{start.name}` = {start.text}", why, start.span)
    return {"delivery": out} if out else {}


def _replication_factor(pair: MirrorPair, notes: ImportNotes) -> dict[str, Any]:
    said = pair.config.get("replication.factor")
    number = parse_setting_number(said, notes)
    if said is None:
        notes.add_not_carried(
            f"replication factor of {pair.source.name}->{pair.target.name}",
            "MirrorMaker's default is 2; the topology leaves it to the target's brokers (`replication_factor`)",
            pair.where,
        )
        return {}
    if number is None or number < 1 or number > 32:
        if number is not None and number != -1:
            notes.add_problem("SYN011", f"`{said.name}`: expected -1, or a number from 1 to 32", said.span)
        return {}
    if number < 3:
        notes.add_problem(
            "TPC405",
            f"topics are created at the target with {number} {'replica' if number == 1 else 'replicas'}: "
            f"{'a' if number == 1 else 'with min.insync.replicas 2 a'} single broker's restart stops the flow",
            said.span,
            "3 on a cluster of three or more brokers, or -1 for the brokers' default",
        )
    return {"replication_factor": number}


def _sync(pair: MirrorPair, notes: ImportNotes) -> dict[str, Any]:
    configs: dict[str, Any] = {
        "mode": "continuous" if parse_java_boolean(pair.config.get("sync.topic.configs.enabled"), True) else "once"
    }
    excluded = pair.config.get("config.properties.exclude")
    if excluded is not None:
        texts = [each.strip() for each in excluded.text.split(",") if each.strip()]
        keys = sorted({plain for each in texts if _KEY.fullmatch(plain := re.sub(r"\\(.)", r"\1", each))})
        for each in texts:
            if not _KEY.fullmatch(re.sub(r"\\(.)", r"\1", each)):
                notes.add_not_carried(
                    f"`{excluded.name}`: {each}", "`sync.configs.exclude` names keys, not patterns", excluded.span
                )
        for lost in ("min.insync.replicas", "unclean.leader.election.enable"):
            if keys and lost not in keys:
                notes.add_problem(
                    "SYC510",
                    f"`{excluded.name}` replaces MirrorMaker's own list, so `{lost}` is copied to the target",
                    excluded.span,
                    "it belongs to the target's number of brokers; add it to the list",
                )
        if keys and tuple(keys) != DEFAULT_EXCLUDED_CONFIGS:
            configs["exclude"] = keys
    out: dict[str, Any] = {"configs": configs}
    acls = pair.config.get("sync.topic.acls.enabled")
    if parse_java_boolean(acls, True):
        out["acls"] = {"mode": "continuous", "include_write": "never"}
        if acls is not None:
            notes.add_problem(
                "SYC511",
                f"{pair.source.name}->{pair.target.name}: the ACLs that MirrorMaker copies let nobody write: "
                "producers are refused after a failover",
                acls.span,
                "create the WRITE rights at the target, or `sync.acls.include_write: on_failover`",
                ids=(pair.id,),
            )
    else:
        out["acls"] = {"mode": "never"}
    out["groups"] = _groups(pair, notes)
    return out


def _groups(pair: MirrorPair, notes: ImportNotes) -> dict[str, Any]:
    enabled = pair.config.get("sync.group.offsets.enabled")
    if not parse_java_boolean(enabled, False):
        if pair.running and pair.has_checkpoints:
            notes.add_problem(
                "SYC508",
                f"{pair.source.name}->{pair.target.name}: consumer groups are not written at the target "
                "(`sync.group.offsets.enabled` is false): after a failover they start where their clients' default is",
                enabled.span if enabled is not None else pair.where,
                "set it to true, or translate the offsets when you switch",
                ids=(pair.id,),
                severity="info",
            )
        named = pair.config.get("groups")
        if named is not None:
            why = "no group offsets are written; Watershed translates the offsets of any group on demand"
            notes.add_not_carried(f"`{named.name}`", why, named.span)
        return {"mode": "never"}
    out: dict[str, Any] = {"mode": "continuous"}
    interval = pair.config.get("sync.group.offsets.interval.seconds")
    seconds = parse_setting_number(interval, notes)
    out["interval"] = render_seconds(60 if seconds is None else max(1, seconds))
    include, exclude = build_group_selectors(pair, notes)
    if include:
        out["include"] = list(include)
    if exclude:
        out["exclude"] = list(exclude)
    out["when_target"] = "empty"
    return out


def _workers(pair: MirrorPair, notes: ImportNotes) -> dict[str, Any]:
    out: dict[str, Any] = {}
    tasks = pair.config.get("tasks.max")
    number = parse_setting_number(tasks, notes)
    if tasks is not None and number is not None:
        if 1 <= number <= 1000:
            out["count"] = number
        else:
            notes.add_problem("SYN011", f"`{tasks.name}`: expected a number from 1 to 1000", tasks.span)
    refresh = pair.config.get("refresh.topics.interval.seconds")
    seconds = parse_setting_number(refresh, notes)
    if refresh is not None and seconds is not None and seconds > 0:
        out["discovery"] = render_seconds(seconds)
        help_ = f"for {seconds} ms write {seconds // 1000}" if seconds % 1000 == 0 else "write seconds"
        report_slow_discovery(refresh, seconds, "seconds", help_, (pair.id,), notes)
    rack = pair.config.get("consumer.client.rack")
    if rack is not None and rack.text.strip():
        out["near"] = {"rack": rack.text.strip()}
    return {"workers": out} if out else {}
