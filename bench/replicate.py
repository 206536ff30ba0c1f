"""How fast records are copied, at what price, and how late: Watershed, MirrorMaker 2 (default and tuned), the limit.

One run, the same loaded topics, one contender after the other with nothing else running. Environment:
BENCH_CASES (some of the names in `bench.workload.CASES`, comma-separated, `none`, or `quick`), BENCH_SECONDS (how long
a fast copy takes about, default 2), BENCH_ROUNDS (default 3; medians count), BENCH_CONTENDERS.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.contenders import Limit, Mirror, Place, Run, Watershed
from bench.workload import CASES, Case, delete, load
from clusters.settings import ConnectionSettings
from lab import clusters, mirrormaker


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="watershed-bench-") as scratch, _place(Path(scratch)) as place:
        mirrors = [mirrormaker.start(place.directory / kind, place.target.bootstrap[0]) for kind in ("mm2", "mm2-tuned")]
        try:
            contenders = [
                Limit(place),
                Watershed(place),
                Mirror(place, "mm2 default", mirrors[0], tuned=False),
                Mirror(place, "mm2 tuned", mirrors[1], tuned=True),
            ]
            names=os.environ.get("BENCH_CASES","100b-none-1000").split(",")
            for case in [c for c in CASES if c.name in names]:
                t=time.time()
                loaded = load(case, place.source, f"{case.name}", float(os.environ.get("BENCH_SECONDS","2")))
                print(case.name, loaded.records, loaded.bytes/1e6, "loaded", time.time()-t)
                for c in contenders:
                    for _ in range(2):
                        run=c.copy(loaded, 6.0)
                        p=run.progress
                        print(f"{c.name:12} start {p.start_s:.2f} {p.seconds:.2f}s {p.records/p.seconds/1e3:.0f}k rec/s {p.records/loaded.records*loaded.bytes/p.seconds/1e6:.0f} MB/s cpu/M {p.cpu_s/p.records*1e6:.2f} brokers {p.brokers_cpu_s/p.records*1e6:.2f} cpu {p.cpu_s/p.seconds:.2f} rss {run.peak_mib:.0f} whole {p.whole}", flush=True)
                delete(place.source, loaded.topic)
        finally:
            for each in mirrors:
                each.stop()
    return 0


@contextmanager
def _place(directory: Path) -> Iterator[Place]:
    try:
        lab = clusters.up(directory / "lab", ["source", "target"])
        source, target = (
            ConnectionSettings(alias, tuple(lab.cluster(alias).bootstrap.split(","))) for alias in ("source", "target")
        )
        pids = tuple(broker.pid for cluster in lab.clusters.values() for broker in cluster.brokers if broker.pid)
        yield Place(directory, source, target, pids)
    finally:
        clusters.down(directory / "lab")


if __name__ == "__main__":
    sys.exit(main())
