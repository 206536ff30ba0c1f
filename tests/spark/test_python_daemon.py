"""Spark's Python processes of a worker are forked with what tasks import."""

from __future__ import annotations

import subprocess
import sys


def test_the_daemon_tells_its_port_and_ends_with_spark() -> None:
    daemon = [sys.executable, "-m", "watershed.spark.transform.python_daemon", "pyspark.worker"]
    ended = subprocess.run(daemon, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert 0 < int.from_bytes(ended.stdout, "big") < 1 << 16
    assert ended.stderr == b""
