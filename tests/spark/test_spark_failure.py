"""What Spark fails of is told in one sentence, and is an error (exit 2), never a difference (exit 1)."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError

from watershed.spark.errors import SparkError
from watershed.spark.failure_text import describe_failure, raise_as_spark_error
from watershed.spark.fingerprint import ChunkSum
from watershed.spark.reading.range_requests import RangeRequest
from watershed.spark.reading.range_sums import RangeSum
from watershed.spark.spark_range_readers import require_each_range_once

TASK = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 0.0 (TID 6) (127.0.0.1 executor 1): """
OURS = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
watershed.clusters.errors.SecretMissing: cluster onprem: environment variable ONPREM_PASSWORD is not set. Set it and try again.

Driver stacktrace:
"""  # noqa: E501


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (TASK + OURS, "cluster onprem: environment variable ONPREM_PASSWORD is not set. Set it and try again"),
        (
            TASK + "ModuleNotFoundError: No module named 'confluent_kafka'",
            "an executor's Python has no module confluent_",
        ),
        (
            TASK + 'java.io.IOException: Cannot run program "/opt/venv/bin/python": error=2',
            "no Python at /opt/venv/bin/",
        ),
        (TASK + "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9", "is of another minor version"),
        (
            TASK + "ExecutorLostFailure (executor 1 exited): Command exited with code 137",
            "ran out of memory or was ended",
        ),
        (
            TASK + "ExecutorLostFailure (executor 1 exited): worker lost",
            "executors were lost, more often than Spark tries",
        ),
        (TASK + "java.lang.OutOfMemoryError: Java heap space", "ran out of memory"),
        (
            TASK + "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
            "was ended from outside",
        ),
        ("org.apache.spark.SparkException: Master removed our application: KILLED", "the Spark cluster ended our app"),
        ("[CANNOT_OPEN_SOCKET] Can not open socket: ['tried ...'].", "Spark's Java process has ended"),
        (
            TASK + OURS.replace("watershed.clusters.errors.SecretMissing", "ValueError"),
            "ValueError: cluster onprem: environment",
        ),
        (TASK + "PythonException: Traceback (most recent call last):\n  File x\nMemoryError\n", "ran out of memory"),
        ("something new.\nmore of it", "something new"),
        ("", "PySparkRuntimeError"),
    ],
)
def test_what_spark_says_becomes_a_sentence(said: str, told: str) -> None:
    failed = describe_failure(PySparkRuntimeError(said))
    assert told in failed
    assert "\n" not in failed
    assert not failed.endswith(".")


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "refused"), EOFError()]
)
def test_java_that_is_gone_is_an_error_of_ours(error: Exception) -> None:
    with (
        pytest.raises(SparkError, match=r"^the job failed: Spark's Java process has ended: .*\. Run it again$") as told,
        raise_as_spark_error("the job failed", "Run it again"),
    ):
        raise error
    assert told.value.exit_code == 2
    assert told.value.__cause__ is error


def test_an_error_of_the_system_is_not_blamed_on_java() -> None:
    assert describe_failure(OSError(28, "No space left on device")) == "[Errno 28] No space left on device"


def test_our_own_errors_pass() -> None:
    with pytest.raises(SparkError, match=r"^no such flow$"), raise_as_spark_error("the job failed", "Run it again"):
        raise SparkError("no such flow")


def test_a_result_counts_once_or_not_at_all() -> None:
    units = [RangeRequest(number, "onprem", "orders", "id", 0, number, number + 1) for number in range(2)]
    found = [RangeSum(number, "read", "", -1, ChunkSum(n=1), 1) for number in range(2)]
    assert {number: each.sums.n for number, each in require_each_range_once(units, found).items()} == {0: 1, 1: 1}
    with pytest.raises(SparkError, match="result of range 1 twice"):
        require_each_range_once(units, [*found, found[1]])
    with pytest.raises(SparkError, match="1 results for 2 ranges"):
        require_each_range_once(units, found[:1])
