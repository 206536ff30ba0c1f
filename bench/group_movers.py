"""The contenders of the group benchmark: MirrorMaker 2 with its checkpoint connector, and Watershed. Each copies the
topics and moves the groups."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from watershed.bench.bench_clusters import BenchClusters
from watershed.bench.copy_contenders import WatershedContender
from watershed.bench.group_positions import POSITIONS_POLL_S, GroupPositionsWatch
from watershed.bench.numbered_topics import GROUP_BENCH_PARTITIONS
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.lab.mirrormaker import ConnectMirrorMaker, build_checkpoint_connector, build_source_connector
from watershed.topology import compile_path

_MOVE_WAIT_S = 120.0  # the longest time for one move
_STILL_S = 15.0  # MirrorMaker is done when nothing has changed for so long; its own intervals are 1 s
# Both MirrorMaker variants sync at the shortest interval. All other settings are defaults.
_OFTEN = {
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "refresh.groups.interval.seconds": "5",
}
_TUNED = {"offset.lag.max": "1", "source.consumer.isolation.level": "read_committed"}


class GroupMover(Protocol):
    """One contender. `prefix` stands before its topics on the target, with a dot."""

    @property
    def name(self) -> str:
        """The contender's name in tables."""

    @property
    def prefix(self) -> str:
        """What its target topics begin with."""

    def move(self, groups: Sequence[str], topics: Sequence[str], stopped: float) -> dict[str, float]:
        """Waits until the contender has moved the groups. Returns for each group the seconds from `stopped`
        (time.monotonic) until its offsets changed for the last time."""


@dataclass(frozen=True, slots=True)
class _MirrorMakerMover:
    """MirrorMaker 2 moves groups all the time. `move` waits until MirrorMaker has nothing more to do."""

    name: str
    prefix: str
    target: ConnectionSettings

    def move(self, groups: Sequence[str], topics: Sequence[str], stopped: float) -> dict[str, float]:
        places = _places(self.prefix, topics)
        with GroupPositionsWatch(self.target, groups, places, stopped) as positions:
            while time.monotonic() - positions.last < _STILL_S and time.monotonic() - stopped < _MOVE_WAIT_S:
                time.sleep(POSITIONS_POLL_S)
        return positions.seconds()


@dataclass(frozen=True, slots=True)
class _WatershedMover:
    """The worker of Watershed follows the groups every second. After they stop, the command carries the rest."""

    name: str
    prefix: str
    target: ConnectionSettings
    path: Path
    flow: str

    def move(self, groups: Sequence[str], topics: Sequence[str], stopped: float) -> dict[str, float]:
        command = [sys.executable, "-m", "watershed.cli.main", "offsets", "sync", str(self.path), "--flow", self.flow]
        with GroupPositionsWatch(self.target, groups, _places(self.prefix, topics), stopped) as positions:
            while (done := subprocess.run(command, capture_output=True, text=True, check=False)).returncode:
                if done.returncode != 1 or time.monotonic() - stopped > _MOVE_WAIT_S:
                    raise RuntimeError(f"topology offsets sync answered {done.returncode}: {done.stderr[-500:]}")
                time.sleep(POSITIONS_POLL_S)  # exit code 1: a position waits for records that are not copied yet
        return positions.seconds()


@contextmanager
def run_mirrormaker_mover(
    place: BenchClusters, mirror: ConnectMirrorMaker, name: str, topics: Sequence[str]
) -> Iterator[_MirrorMakerMover]:
    """Runs a source and a checkpoint connector in the running process. Groups with commits must exist already."""
    alias = name.replace(" ", "-")
    # Each contender names the same target differently, so that each has its own topic of offset syncs.
    more = {"target.cluster.alias": f"target-of-{alias}"} | (_TUNED if name.endswith("tuned") else {})
    source, target = place.source.bootstrap[0], place.target.bootstrap[0]
    pattern = "|".join(map(re.escape, topics))
    mirror.put(f"{alias}-source", build_source_connector(source, target, alias, pattern, more))
    mirror.put(f"{alias}-checkpoints", build_checkpoint_connector(source, target, alias, pattern, _OFTEN | more))
    yield _MirrorMakerMover(name, alias, place.target)


@contextmanager
def run_watershed_mover(
    place: BenchClusters, topics: Sequence[str], groups: Sequence[str]
) -> Iterator[_WatershedMover]:
    """`topology worker` in a process of its own."""
    sync = f"    sync: {{groups: {{mode: continuous, interval: 1s, include: [{', '.join(groups)}]}}}}\n"
    with WatershedContender(place, more=sync).running(*topics) as (_, prefix):
        path = place.directory / f"{prefix}.yaml"
        (flow,) = compile_path(path).flows
        yield _WatershedMover("watershed", prefix, place.target, path, flow.id)


def _places(prefix: str, topics: Sequence[str]) -> list[TopicPartition]:
    return [TopicPartition(f"{prefix}.{topic}", number) for topic in topics for number in range(GROUP_BENCH_PARTITIONS)]
