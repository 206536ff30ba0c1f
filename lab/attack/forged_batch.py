"""1: a record at the source under the producer id of the flow back, which is declared, paused, and never wrote."""

from __future__ import annotations

import json
import time
from pathlib import Path

from watershed.clusters.record_batch import build_simple_batch
from watershed.lab.attack.attack_setup import ATTACK_SOURCE, ATTACK_TARGET, AttackSetup, wait_until
from watershed.lab.attack.control_checks import require_carried_out
from watershed.lab.attack.outcome import Attack, AttackFindings
from watershed.lab.raw_batches import append_raw_batches

_TOPIC, _HONEST, _FORGED = "forged.orders", 20, b"written under a flow's id"
_FLOWS = """\
defaults:
  naming: {policy: identity}
  topics: {include: [forged.orders]}
  workers: {engine: process, discovery: 1s}
flows:
  - {source: onprem, target: cloud, suffix: forged}
  - {source: cloud, target: onprem, suffix: forged, state: paused}
"""


def _forge_a_batch(scene: AttackSetup) -> AttackFindings:
    file = scene.pair_file("forged", _FLOWS, **scene.bootstrap)
    scene.create(ATTACK_SOURCE, _TOPIC, partitions=2)
    applied = scene.topology("apply", file, "--yes")
    require_carried_out(applied.code == 0, f"topology apply: {applied.how}: {applied.err}")
    for partition in (0, 1):
        scene.write(ATTACK_SOURCE, _TOPIC, [b"honest %d" % number for number in range(_HONEST)], partition)
    with scene.worker(file) as worker:
        require_carried_out(
            wait_until(lambda: all(scene.end_of(ATTACK_TARGET, _TOPIC, each) == _HONEST for each in (0, 1))),
            "the honest records were not copied",
        )
        stolen = _id_of_flow_back(scene)
        batch = build_simple_batch(
            [_FORGED], timestamp=int(time.time() * 1000), producer_id=stolen, epoch=0, base_sequence=0
        )
        append_raw_batches(scene.settings(ATTACK_SOURCE), _TOPIC, {1: [batch]})
        require_carried_out(
            scene.end_of(ATTACK_SOURCE, _TOPIC, 1) == _HONEST + 1, "the broker did not keep the forged batch"
        )
        findings = AttackFindings(
            f"one batch with producerId={stolen}, epoch=0, sequence=0 to {_TOPIC}-1 at the source"
        )
        _see_the_proof(scene, findings, file)
        _see_the_copy(scene, findings, file)
        findings.expect(worker.is_running, "the worker runs", "the worker died")
        return findings


def _id_of_flow_back(scene: AttackSetup) -> int:
    """Small and easy to guess; the attacker of this script looks it up."""
    flow = next(
        (value for key, value in scene.read(ATTACK_SOURCE, "watershed.flows") if key == "cloud-to-onprem-forged"), None
    )
    found = json.loads(flow or b"{}").get("producer_id")
    require_carried_out(isinstance(found, int), "the flow back has no producer id in watershed.flows at the source")
    return int(found)


def _see_the_proof(scene: AttackSetup, findings: AttackFindings, file: Path) -> None:
    ended = scene.topology(*_verify(scene, file, "before"), "--wait", "5")
    proof = ended.json()
    require_carried_out(
        proof.get("proven") == 2 * _HONEST, f"the honest records are not proven: {ended.how}: {ended.err}"
    )
    counts = {name: proof.get(name, 0) for name in ("missing", "pending", "unverifiable")}
    counted = [f"{count} {name}" for name, count in {"proven": proof["proven"], **counts}.items() if count]
    told = f"the proof has exit code {ended.code}, {', '.join(counted)}"
    findings.expect(ended.code in (1, 3) and sum(counts.values()) == 1, told, told)


def _see_the_copy(scene: AttackSetup, findings: AttackFindings, file: Path) -> None:
    state = ""

    def stopped() -> bool:
        nonlocal state
        state = str(scene.partition(file, _TOPIC, 1).get("state", ""))
        return state == "source_foreign_write"

    findings.expect(
        wait_until(stopped, 30), "the partition stops as source_foreign_write", f"the partition is `{state}`"
    )
    scene.write(ATTACK_SOURCE, _TOPIC, [b"honest at last"], 0)
    findings.expect(
        wait_until(lambda: scene.end_of(ATTACK_TARGET, _TOPIC, 0) == _HONEST + 1, 60),
        "its neighbour goes on",
        "its neighbour is not copied any more",
    )
    ordered = scene.topology(
        *("flow", "copy-foreign", "onprem-to-cloud-forged", file, "-t", _TOPIC, "-p", "1", "--yes", "--wait", "60")
    )
    copied = [value for _, value in scene.read(ATTACK_TARGET, _TOPIC, 1)].count(_FORGED)
    findings.expect(
        ordered.code == 0 and copied == 1,
        "copy-foreign has it copied",
        f"after copy-foreign ({ordered.how}) the target has it {copied} times",
    )
    ended = scene.topology(*_verify(scene, file, "after"))
    proven = ended.json().get("proven")
    findings.expect(
        ended.code == 0 and proven == 2 * _HONEST + 2,
        f"then all {proven} are proven",
        f"the proof afterwards: {ended.how}, {proven} proven",
    )


def _verify(scene: AttackSetup, file: Path, name: str) -> tuple[object, ...]:
    flow = ("--flow", "onprem-to-cloud-forged")
    return ("verify", file, *flow, "--format", "json", "-o", scene.folder / f"proof-{name}")


FORGED_BATCH_ATTACK = Attack(
    1,
    "Who may write to a topic hides records from copy and proof under a flow's producer id",
    _forge_a_batch,
    needs_clusters=True,
)
