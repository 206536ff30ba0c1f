"""5: records in the control topics that nobody can read: they stop no fleet and no migration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from watershed.clusters.control_topics import (
    FLOWS_TOPIC,
    JOURNAL_TOPIC,
    LEDGER_TOPIC,
    SLOT_COUNT,
    STATUS_TOPIC,
    compute_slot,
)
from watershed.lab.attack.attack_setup import ATTACK_SOURCE, ATTACK_TARGET, AttackSetup, wait_until
from watershed.lab.attack.control_checks import require_carried_out
from watershed.lab.attack.outcome import Attack, AttackFindings

# No JSON, nested deep, no number of JSON's, lists where text is meant, no UTF-8.
BAD_VALUES: Final = (
    b"not json",
    b"[" * 50_000,
    b'{"schema":1,"at_ms":Infinity}',
    b'{"flow":["x"],"topology":["x"]}',
    b"\xff",
)
# Of keys in watershed.flows: each has a reader of its own.
KEY_KINDS: Final = (
    *("fleet/", "order|", "placement|", "producer|", "group|order|", "group|carried|", "group|state|"),
    *("alignment|", "withheld|", "synced_acls|", "synced_user|", "protection|"),
)
_Key = tuple[str, str, int]  # topic, key, partition
_TOPIC, _HONEST, _FLOW = "records.orders", 20, "onprem-to-cloud-records"
# Lines of the journal that say to be of this very topology.
_JOURNAL_LINES = (
    b'{"topology":"records"}',
    b'{"topology":"records","schema":1,"run":["x"],"wave":{"a":1},"step":7,"at_ms":Infinity}',
    b'{"topology":"records","schema":1,"observation":' + b"[" * 50_000 + b"}",
    b'{"topology":"records","schema":1,"run":"r1","wave":"one","step":"approval","kind":"outcome","deed":"","seq":1,'
    b'"at_ms":1,"actor":"nobody","observation":{"approved":true},"previous":"0","hash":"0"}',
)
_FLOWS = """\
flows:
  - source: onprem
    target: cloud
    suffix: records
    topics: {include: [records.orders]}
    naming: {policy: identity}
    workers: {engine: process, discovery: 1s}
migration:
  flow: onprem-to-cloud-records
  waves:
    - {name: one, topics: [records.orders], consumers: [billing], producers: [shop],
       gates: {before: [{lag: {max_records: 0, hold: 30s}}]}, rollback: {none: tried}}
"""
_COMMANDS = (
    ("status", "--format", "json"),
    ("plan",),
    ("migrate", "--status"),
    ("migrate", "--dry-run"),
    ("journal",),
    ("journal", "--orders"),
)


def _spoil_control_topics(scene: AttackSetup) -> AttackFindings:
    file = scene.pair_file("records", _FLOWS, **scene.bootstrap)
    scene.create(ATTACK_SOURCE, _TOPIC, partitions=2)
    applied = scene.topology("apply", file, "--yes")
    require_carried_out(applied.code == 0, f"topology apply: {applied.how}: {applied.err}")
    before = {command: scene.topology(command[0], file, *command[1:]) for command in _COMMANDS}
    for command, ended in before.items():
        require_carried_out(
            ended.code == 0, f"topology {' '.join(command)} before the attack: {ended.how}: {ended.err}"
        )
    spoilt: list[_Key] = []
    try:
        with scene.worker(file) as worker:
            _write(scene)
            require_carried_out(wait_until(lambda: _are_copied(scene, 1, 0, 1)), "the honest records were not copied")
            offsets = _spoil(scene, spoilt)
            findings = AttackFindings(f"{sum(map(len, offsets.values()))} bad records in {', '.join(offsets)}")
            _write(scene)
            findings.expect(
                wait_until(lambda: _are_copied(scene, 2, 0, 1)) and worker.is_running,
                "the running worker copies on",
                "the running worker stands still",
            )
            said = worker.said
        said += _begin_anew(scene, findings, file, spoilt)
        said += _see_commands(scene, findings, file)
        named = {topic: sum(_is_named(said, topic, *at) for at in where) for topic, where in offsets.items()}
        told = ", ".join(f"{topic} ({count} of {len(offsets[topic])})" for topic, count in named.items())
        findings.expect(all(named.values()), f"named with their offsets: {told}", f"not all are named: {told}")
    finally:
        for topic, key, partition in spoilt:  # so that later attacks find clean topics
            scene.write(ATTACK_TARGET, topic, [None], partition, key)
    return findings


def _begin_anew(scene: AttackSetup, findings: AttackFindings, file: Path, spoilt: list[_Key]) -> str:
    """A worker that starts among all that, and with a bad record in the ledger of partition 1. What it said."""
    key, slot = f"{_FLOW}|{_TOPIC}|1|1.intruder|0", compute_slot(_FLOW, _TOPIC, 1)
    spoilt.append((LEDGER_TOPIC, key, slot))
    scene.write(ATTACK_TARGET, LEDGER_TOPIC, [b"not json"], slot, key)
    with scene.worker(file) as worker:
        _write(scene)
        findings.expect(
            wait_until(lambda: _are_copied(scene, 3, 0)),
            "a new one copies what has no bad ledger",
            "a new worker copies nothing",
        )
        state = ""

        def stopped() -> bool:
            nonlocal state
            state = str(scene.partition(file, _TOPIC, 1).get("state", ""))
            return state == "ledger_invalid"

        findings.expect(wait_until(stopped, 30), "and stops only the other (`ledger_invalid`)", f"partition 1: {state}")
        scene.write(ATTACK_TARGET, LEDGER_TOPIC, [None], slot, key)
        findings.expect(
            wait_until(lambda: _are_copied(scene, 3, 1)), "a tombstone heals it", "a tombstone does not heal its ledger"
        )
        findings.expect(worker.is_running, "it runs", "it died")
        return worker.said


def _spoil(scene: AttackSetup, spoilt: list[_Key]) -> Mapping[str, list[tuple[int, int]]]:
    """Topic → where its bad records are (partition, offset)."""
    found: dict[str, list[tuple[int, int]]] = {
        topic: [] for topic in (FLOWS_TOPIC, LEDGER_TOPIC, STATUS_TOPIC, JOURNAL_TOPIC)
    }
    for prefix in ("", *KEY_KINDS):
        for number, value in enumerate(BAD_VALUES):
            key = f"{prefix}intruder{number}"
            spoilt.append((FLOWS_TOPIC, key, 0))
            found[FLOWS_TOPIC] += [(0, at) for at in scene.write(ATTACK_TARGET, FLOWS_TOPIC, [value], key=key)]
    for topic in (LEDGER_TOPIC, STATUS_TOPIC):
        for slot in range(SLOT_COUNT):
            spoilt.append((topic, "intruder", slot))
            found[topic] += [(slot, at) for at in scene.write(ATTACK_TARGET, topic, BAD_VALUES, slot, "intruder")]
    for journal_key in (None, "records"):
        lines = [*BAD_VALUES, *_JOURNAL_LINES]
        found[JOURNAL_TOPIC] += [(0, at) for at in scene.write(ATTACK_TARGET, JOURNAL_TOPIC, lines, key=journal_key)]
    return found


def _see_commands(scene: AttackSetup, findings: AttackFindings, file: Path) -> str:
    said, failed = "", False
    for command in _COMMANDS:
        ended = scene.topology(command[0], file, *command[1:])
        said += ended.said
        if ended.code != 0 or not ended.is_clean:
            failed = True
            findings.broken.append(f"topology {' '.join(command)}: {ended.how}: {ended.err.strip().splitlines()[-1:]}")
    if not failed:
        names = ", ".join(dict.fromkeys(command[0] for command in _COMMANDS))
        findings.seen.append(f"{names} work as before")
    return said


def _is_named(said: str, topic: str, partition: int, offset: int) -> bool:
    """As a log line, `topic=… partition=… offset=…`, or in a sentence, `watershed.flows-0 offset 12`."""
    words = (
        rf"topic={re.escape(topic)} partition={partition} offset={offset}\b",
        rf"{re.escape(topic)}(-{partition}|[^\n]{{0,40}} partition {partition})?\b[^\n]{{0,40}} offset {offset}\b",
    )
    return any(re.search(each, said) for each in words)


def _write(scene: AttackSetup) -> None:
    for partition in (0, 1):
        scene.write(ATTACK_SOURCE, _TOPIC, [b"honest %d" % number for number in range(_HONEST)], partition)


def _are_copied(scene: AttackSetup, times: int, *partitions: int) -> bool:
    return all(scene.end_of(ATTACK_TARGET, _TOPIC, each) == times * _HONEST for each in partitions)


CONTROL_RECORDS_ATTACK = Attack(
    5,
    "One bad record in a control topic stops every fleet, or every migration, of a cluster",
    _spoil_control_topics,
    needs_clusters=True,
)
