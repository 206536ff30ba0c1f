"""The proof's tasks in Spark, with one core and with two; and the JVM's own way to read Kafka, where there is one.

    python -m watershed.bench.spark_scaling tasks|jvm MASTER ADDRESS TOPIC

prints what reading the topic took as JSON, the third time over: the session and Python's workers are warm then.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from watershed.bench.process_usage import list_descendants, read_cpu_seconds, read_peak_mib
from watershed.bench.results import choose_size
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.connection import open_connection
from watershed.clusters.wire.messages import LATEST
from watershed.lab.errors import LabError
from watershed.lab.jars import fetch_jars
from watershed.spark.reading.range_requests import RangeRequest, SumKind
from watershed.spark.session import create_spark_session, end_session
from watershed.topology.plan import Plan, PlanCluster

_POM = Path(__file__).with_name("spark_kafka.xml")
_CHUNK = 100_000
_ROUNDS = choose_size(3, 1)
# what a proof compares of each record, as far as plain SQL gets at it (no headers)
_SQL = ("xxhash64(cast(key is null as int), key) kh", "xxhash64(cast(value is null as int), value) vh", "timestamp")


def measure_spark_tasks(what: str, master: str, settings: ConnectionSettings, topic: str) -> dict[str, Any]:
    """Reads the topic in a Spark application of its own; returns what that printed. Raises RuntimeError."""
    command = [sys.executable, "-m", "watershed.bench.spark_scaling", what, master, settings.bootstrap[0], topic]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{what} with {master} ended with {done.returncode}: {done.stderr[-800:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def fetch_spark_connector() -> tuple[Path | None, str]:
    """Jars of the connector for the Spark that is installed; without them, what Maven said."""
    try:
        return fetch_jars(_POM, name="spark-kafka"), ""
    except LabError as error:
        said = re.search(r"org\.apache\.spark:\S+ was not found|Could not (?:find|transfer) artifact \S+", str(error))
        return None, said[0] if said else str(error).splitlines()[-1]


def main() -> None:
    """Reads the topic three times in one session and prints the costs as JSON."""
    what, master, address, topic = sys.argv[1:]
    settings, conf = ConnectionSettings("bench", (address,)), {}
    if what == "jvm":
        home, why = fetch_spark_connector()
        if home is None:
            raise SystemExit(why)
        conf["spark.jars"] = ",".join(str(each) for each in (*home.glob("*kafka*.jar"), *home.glob("*pool2*.jar")))
    began = time.monotonic()
    session = create_spark_session("bench", master=master, conf=conf)
    found: dict[str, Any] = {"session_s": time.monotonic() - began}
    jobs = {"jvm": [("sql", lambda: _sql(session, address, topic))]}.get(
        what, [(by, lambda by=by: _tasks(session, settings, topic, by)) for by in ("batches", "records")]
    )
    for name, job in jobs:
        found[name] = _timed(job)
    workers = [pid for pid in list_descendants(os.getpid()) if b"pyspark" in _command(pid) and pid != os.getpid()]
    found["worker_mib"] = read_peak_mib([pid for pid in workers if b"java" not in _command(pid).split(b"\0")[0]])
    end_session(session)
    click.echo(json.dumps(found))


def _timed(job: Callable[[], int]) -> dict[str, float]:
    rounds = []
    for _ in range(_ROUNDS):
        before, began = read_cpu_seconds(list_descendants(os.getpid())), time.monotonic()
        records = job()
        rounds.append((time.monotonic() - began, read_cpu_seconds(list_descendants(os.getpid())) - before))
    return {"records": records, "first_s": rounds[0][0], "seconds": rounds[-1][0], "cpu_s": rounds[-1][1]}


def _tasks(session: Any, settings: ConnectionSettings, topic: str, by: SumKind) -> int:
    from watershed.spark.spark_range_readers import build_spark_readers

    with closing(open_connection(settings)) as link:
        [found] = link.metadata((topic,)).topics
        ends = {
            each.partition: link.list_offsets(((topic, each.partition),), LATEST)[0].offset for each in found.partitions
        }
    places = [(partition, at, min(at + _CHUNK, end)) for partition, end in ends.items() for at in range(0, end, _CHUNK)]
    units = [
        RangeRequest(number, "bench", topic, str(found.topic_id), *place, by=by) for number, place in enumerate(places)
    ]
    plan = Plan("bench", (PlanCluster("bench", settings.bootstrap),), ())
    return sum(each.sums.n for each in build_spark_readers(lambda: session, plan).sums(units).values())


def _sql(session: Any, address: str, topic: str) -> int:
    options = {"kafka.bootstrap.servers": address, "subscribe": topic}
    frame = session.read.format("kafka").options(**options, startingOffsets="earliest", endingOffsets="latest").load()
    prints = frame.selectExpr(*_SQL).selectExpr("xxhash64(kh, vh, cast(timestamp as long)) fp")
    return int(prints.selectExpr("count(*) n", "bit_xor(fp) x").collect()[0].n)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    main()
