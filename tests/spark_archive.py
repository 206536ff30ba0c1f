"""Writes the class-data archive of Spark's driver (JEP 350) that the tests use: `python -m tests.spark_archive FILE`.

The tests start about thirty drivers, and loading Spark's classes costs each 3.5 s of processor time, half of a start.
An archive fits one Java and one set of jars; a Java that finds it unfit does without.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Mapped where it was written for, an archive needs no pointer of its 150 MB changed.
OPTIONS = "-Xshare:auto -Xlog:disable -XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"


def write_archive(path: Path) -> None:
    """Runs a session with a small query in a process of its own, which leaves the archive when it ends."""
    scratch = path.with_suffix(f".{os.getpid()}")
    environ = {**os.environ, "SPARK_SUBMIT_OPTS": f"{OPTIONS} -XX:ArchiveClassesAtExit={scratch}"}
    subprocess.run([sys.executable, "-m", "tests.spark_archive"], env=environ, check=True, stdout=subprocess.DEVNULL)
    scratch.replace(path)


def _load_classes() -> None:
    from watershed.spark.session import create_spark_session

    session = create_spark_session("archive")
    rows = session.createDataFrame([(number, str(number)) for number in range(100)], ["number", "text"])
    counted = rows.groupBy((rows.number % 7).alias("rest")).count().orderBy("rest")
    assert len(counted.collect()) == 7
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(600)  # Java writes the archive when it ends


if __name__ == "__main__":
    if sys.argv[1:]:
        write_archive(Path(sys.argv[1]))
    else:
        _load_classes()
