"""Topics into a folder and back, as contenders of the copy benchmark: `topology archive` and `topology restore`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from watershed.bench.bench_clusters import BenchClusters
from watershed.bench.copy_contenders import CopyRun
from watershed.bench.copy_progress import CopyMeasurement, CopyWatch
from watershed.bench.process_usage import is_running, read_cpu_seconds, read_peak_mib
from watershed.bench.workload import LoadedTopic, delete_bench_topic
from watershed.spark.archive.archive_run import archive_topics
from watershed.spark.archive.storage import FolderStorage
from watershed.topology.selectors import Selector, TopicSelection

_OBJECT_BYTES: Final = 32 << 20  # the command's default
_TOPOLOGY: Final = """\
apiVersion: topology/v1alpha1
kind: Topology
metadata: {{name: carried, owner: bench}}
clusters:
  target: {{bootstrap: ["{target}"], security: {{protocol: PLAINTEXT}}}}
"""


class ArchiveContender:
    """Archives within this process, so that its processor time has nothing of a command's start."""

    name = "archive"

    def __init__(self, place: BenchClusters) -> None:
        self._place = place

    def copy(self, loaded: LoadedTopic, at_most: float) -> CopyRun:
        """Archives the whole topic, and deletes the archive. Ignores `at_most`."""
        own, brokers, started = time.process_time(), read_cpu_seconds(self._place.brokers), time.monotonic()
        with _write_archive(self._place, loaded):
            progress = CopyMeasurement(
                0.0,
                time.monotonic() - started,
                loaded.records,
                time.process_time() - own,
                read_cpu_seconds(self._place.brokers) - brokers,
                True,
            )
        return CopyRun(self.name, progress, read_peak_mib([os.getpid()]))


class RestoreContender:
    """Starts `topology restore` for each copy, from an archive that it makes before, unmeasured."""

    name = "restore"

    def __init__(self, place: BenchClusters) -> None:
        self._place = place

    def copy(self, loaded: LoadedTopic, at_most: float) -> CopyRun:
        """Watches the restore of the whole topic, for `at_most` seconds or 30, whichever is longer."""
        topic = f"restored-{time.monotonic_ns()}.{loaded.topic}"
        path = self._place.directory / "carried.yaml"
        path.write_text(_TOPOLOGY.format(target=self._place.target.bootstrap[0]))
        with _write_archive(self._place, loaded) as folder:
            command = [
                sys.executable,
                "-m",
                "watershed.cli.main",
                "restore",
                str(path),
                "--cluster",
                "target",
                "--from",
            ]
            command += [str(folder), "--rename", f"{loaded.topic}={topic}"]
            with (self._place.directory / "restore.log").open("wb") as log:
                process = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                brokers, most = self._place.brokers, max(at_most, 30.0)
                watch = CopyWatch(self._place.target, topic, loaded.records, process.pid, brokers, most)
                progress = watch.until_done(lambda: is_running(process.pid))
                peak = read_peak_mib([process.pid])
                process.wait(60)
            finally:
                process.kill()
                process.wait(30)
        delete_bench_topic(self._place.target, topic)
        return CopyRun(self.name, progress, peak)


@contextmanager
def _write_archive(place: BenchClusters, loaded: LoadedTopic) -> Iterator[Path]:
    folder = place.directory / f"archive-{time.monotonic_ns()}"
    chosen = TopicSelection((Selector("literal", loaded.topic),), allow_internal=True)
    try:
        archive_topics(place.source, chosen, FolderStorage(folder), object_bytes=_OBJECT_BYTES)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
