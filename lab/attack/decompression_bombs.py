"""6: batches of a few KB that open to 127 to 130 MiB."""

from __future__ import annotations

import time
from pathlib import Path

from watershed.lab.attack.attack_setup import ATTACK_SOURCE, ATTACK_TARGET, AttackSetup, AttackWorker, wait_until
from watershed.lab.attack.control_checks import require_carried_out
from watershed.lab.attack.outcome import Attack, AttackFindings
from watershed.lab.raw_batches import append_raw_batches, build_zstd_bomb

_MIB = 1 << 20
_SIZES = (127, 128, 130)  # MiB: below, at and above what a worker opens at most
_MEMORY_MIB = 512
_PASSES, _OPENED = "bombs.passes", "bombs.opened"
_HONEST = 20
_FLOWS = """\
flows:
  - source: onprem
    target: cloud
    suffix: bombs
    topics: {include: [bombs.passes, bombs.opened]}
    naming: {policy: identity}
    workers: {engine: process, discovery: 1s}
"""


def _send_decompression_bombs(scene: AttackSetup) -> AttackFindings:
    """`bombs.passes`: what could be passed on as it is, if nobody opened it to see. `bombs.opened`: the source stamps
    the time of arrival (LogAppendTime), so that a worker has to open each batch. Partition 1 gets no bombs."""
    file = scene.pair_file("bombs", _FLOWS, **scene.bootstrap)
    scene.create(ATTACK_SOURCE, _PASSES, partitions=2)
    scene.create(ATTACK_SOURCE, _OPENED, partitions=6, message_timestamp_type="LogAppendTime")
    applied = scene.topology("apply", file, "--yes")
    require_carried_out(applied.code == 0, f"topology apply: {applied.how}: {applied.err}")
    with scene.worker(file) as worker:
        _write_honest(scene)
        require_carried_out(wait_until(lambda: _copied(scene, _HONEST)), "the honest records were not copied")
        before = worker.peak_mib
        now = int(time.time() * 1000)
        bombs = {size: build_zstd_bomb(size * _MIB, now) for size in _SIZES}
        volley = [bombs[size] for size in _SIZES for _ in range(4)]  # side by side, each small enough to be merged
        append_raw_batches(scene.settings(ATTACK_SOURCE), _PASSES, {0: volley})
        worst = {number: [bombs[127]] * 6 for number in (2, 3, 4, 5)}  # side by side, in several fetchers
        append_raw_batches(scene.settings(ATTACK_SOURCE), _OPENED, {0: [bombs[127], bombs[127], bombs[130]], **worst})
        require_carried_out(
            scene.end_of(ATTACK_SOURCE, _PASSES) == _HONEST + len(volley), "the broker did not keep the bombs"
        )
        largest = max(map(len, volley)) / 1024
        findings = AttackFindings(
            f"{len(volley)} batches of at most {largest:.0f} KiB that hold {_SIZES[0]} to {_SIZES[-1]} MiB, and 27 to "
            "five partitions whose batches must be opened"
        )
        _see(scene, findings, file, worker, _HONEST + len(volley))
        peak = worker.peak_mib
        told = f"the worker's peak memory is {peak:.0f} MiB ({before:.0f} before)"
        findings.expect(peak < _MEMORY_MIB, told, f"{told}, {_MEMORY_MIB} at most are allowed")
        findings.expect(worker.is_running, "it runs", "it died")
    return findings


def _see(scene: AttackSetup, findings: AttackFindings, file: Path, worker: AttackWorker, whole: int) -> None:
    passed = wait_until(lambda: scene.end_of(ATTACK_TARGET, _PASSES) == whole)
    findings.expect(passed, "what can pass is copied", f"{scene.end_of(ATTACK_TARGET, _PASSES)} of {whole} were copied")
    opened = wait_until(lambda: all(scene.end_of(ATTACK_TARGET, _OPENED, each) == 6 for each in (2, 3, 4, 5)))
    findings.expect(opened, "and what can be opened", "batches of 127 MiB that must be opened are not copied")
    told = dict[str, object]()

    def stopped() -> bool:
        told.update(scene.partition(file, _OPENED, 0))
        return told.get("state") == "unsupported"

    findings.expect(
        wait_until(stopped, 60) and "holds more than" in str(told.get("error")),
        "what must be opened and holds more than 128 MiB stops its partition as `unsupported`, for its size",
        f"{_OPENED}-0 is {told.get('state')}: {told.get('error')}",
    )
    _write_honest(scene, only=1)
    findings.expect(
        wait_until(lambda: all(scene.end_of(ATTACK_TARGET, each, 1) == 2 * _HONEST for each in (_PASSES, _OPENED)), 60),
        "both neighbours go on",
        "a neighbouring partition is not copied any more",
    )


def _write_honest(scene: AttackSetup, only: int | None = None) -> None:
    for topic in (_PASSES, _OPENED):
        for partition in (0, 1) if only is None else (only,):
            scene.write(ATTACK_SOURCE, topic, [b"honest %d" % number for number in range(_HONEST)], partition)


def _copied(scene: AttackSetup, count: int) -> bool:
    return all(scene.end_of(ATTACK_TARGET, topic, each) == count for topic in (_PASSES, _OPENED) for each in (0, 1))


BOMBS_ATTACK = Attack(
    6,
    "Small batches that hold much stop a partition, or eat the worker's memory",
    _send_decompression_bombs,
    needs_clusters=True,
)
