"""7: a flow whose target is one of the topics in which Kafka or Watershed keeps its state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from watershed.lab.attack.attack_setup import ATTACK_SOURCE, ATTACK_TARGET, AttackSetup, wait_until
from watershed.lab.attack.control_checks import require_carried_out
from watershed.lab.attack.outcome import Attack, AttackFindings

_FILE = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: targets, owner: attack}}
clusters:
  {alias}: {{bootstrap: ["{onprem}"], security: {{protocol: PLAINTEXT}}}}
  cloud: {{bootstrap: ["{cloud}"], security: {{protocol: PLAINTEXT}}}}
flows:
  - source: {alias}
    target: cloud
    suffix: targets
    topics: {{include: [{include}]}}
    naming: {naming}
    workers: {{engine: process, discovery: 1s}}
"""
_OFFS, _FINE = "targets.offs", "targets.fine"
# what a file says: naming, a source topic, the source's alias
_HOSTILE = (
    ('{policy: map, map: {"targets.offs": watershed.journal}}', _OFFS, ATTACK_SOURCE),
    ('{policy: map, map: {"targets.offs": watershed.flows}}', _OFFS, ATTACK_SOURCE),
    ('{policy: map, map: {"targets.offs": __consumer_offsets}}', _OFFS, ATTACK_SOURCE),
    ("{policy: template, template: 'watershed.{topic}'}", "journal", ATTACK_SOURCE),
    ("{policy: template, template: '__{topic}'}", "consumer_offsets", ATTACK_SOURCE),
    ("{policy: prefix}", "journal", "watershed"),
)
_HONEST = '{policy: map, map: {"targets.offs": targets.copied}}'
_HOSTILE_COMMANDS: tuple[tuple[str, ...], ...] = (("lint",), ("compile",), ("apply", "--yes"))
_COUNT = 10


def _write_control_topics(scene: AttackSetup) -> AttackFindings:
    honest = _written(scene, "honest", _HONEST, f"{_OFFS}, {_FINE}", ATTACK_SOURCE)
    honest_commands: tuple[tuple[str, ...], ...] = (("lint", "--fail-on", "error"), ("compile",))
    for command in honest_commands:
        ended = scene.topology(command[0], honest, *command[1:])
        require_carried_out(
            ended.code == 0, f"topology {command[0]} of the honest twin: {ended.how}: {ended.said[-300:]}"
        )
    findings = AttackFindings(
        f"{len(_HOSTILE)} files (map, template, alias), then a flow written by hand into watershed.flows that copies "
        f"{_OFFS} to watershed.journal"
    )
    before = scene.topics(ATTACK_TARGET)
    for number, (naming, include, alias) in enumerate(_HOSTILE):
        file = _written(scene, f"hostile-{number}", naming, include, alias)
        for command in _HOSTILE_COMMANDS:
            ended = scene.topology(command[0], file, *command[1:])
            if not (ended.code == 1 and ended.is_clean and "TPC421" in ended.said):
                findings.broken.append(f"topology {command[0]} of {naming} ({alias}): {ended.how}")
    findings.expect(
        not findings.broken and scene.topics(ATTACK_TARGET) == before,
        "lint, compile and apply refuse each file (TPC421)",
        "apply changed the topics of the target",
    )
    if not findings.broken:
        _write_a_flow_by_hand(scene, findings, honest)
    return findings


def _written(scene: AttackSetup, name: str, naming: str, include: str, alias: str) -> Path:
    return scene.file(f"{name}.yaml", _FILE.format(**scene.bootstrap, alias=alias, include=include, naming=naming))


def _write_a_flow_by_hand(scene: AttackSetup, findings: AttackFindings, file: Path) -> None:
    """No file, no compiler: the record that workers obey. It renames the other topic, too, which shows that they do."""
    scene.create(ATTACK_SOURCE, _OFFS, _FINE)
    for topic in (_OFFS, _FINE):
        scene.write(ATTACK_SOURCE, topic, [b'{"topology":"targets","entry":%d}' % number for number in range(_COUNT)])
    applied = scene.topology("apply", file, "--yes")
    require_carried_out(applied.code == 0, f"topology apply of the honest twin: {applied.how}: {applied.err}")
    record = _flow_record(scene, "onprem-to-cloud-targets")
    renamed = {_OFFS: "watershed.journal", _FINE: "targets.by-hand"}
    record["flow"]["naming"] = record["flow"]["naming"] | {"map": _as_stored(record["flow"]["naming"]["map"], renamed)}
    scene.write(ATTACK_TARGET, "watershed.flows", [json.dumps(record).encode()], key="onprem-to-cloud-targets")
    journal = scene.end_of(ATTACK_TARGET, "watershed.journal")
    require_carried_out(journal >= 0, "there is no watershed.journal at the target")
    with scene.worker(file) as worker:
        require_carried_out(
            wait_until(lambda: scene.end_of(ATTACK_TARGET, "targets.by-hand") == _COUNT),
            "the flow that was written by hand is not obeyed: its harmless topic is not copied",
        )
        held = wait_until(lambda: "watershed.journal" in worker.said, 30)
        grown = scene.end_of(ATTACK_TARGET, "watershed.journal") - journal
    findings.expect(
        grown == 0,
        "the worker copies the flow's other topic and no record",
        f"{grown} records came into watershed.journal",
    )
    told = scene.partition(file, _OFFS, 0)
    findings.expect(
        held and told.get("state") == "unsupported",
        "into watershed.journal: it reports `unsupported`",
        f"nobody says why {_OFFS} is not copied: {told}",
    )


def _flow_record(scene: AttackSetup, flow: str) -> dict[str, Any]:
    found = [value for key, value in scene.read(ATTACK_TARGET, "watershed.flows") if key == flow and value]
    require_carried_out(found, f"watershed.flows has no record of {flow}")
    record: dict[str, Any] = json.loads(found[-1])
    return record


def _as_stored(stored: Any, renamed: dict[str, str]) -> Any:
    """In the shape that the honest record has: an object, or a list of pairs."""
    return renamed if isinstance(stored, dict) else [list(pair) for pair in renamed.items()]


CONTROL_TARGETS_ATTACK = Attack(
    7,
    "A topology copies an application's records into the topics that steer Watershed",
    _write_control_topics,
    needs_clusters=True,
)
