"""Tasks that fail on executors: the reason reaches the driver as one sentence, whatever Spark wraps it in."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import watershed.spark.verify
from watershed.spark.errors import SparkError
from watershed.spark.failure_text import raise_as_spark_error
from watershed.spark.judging.proof_inputs import RangeComparison
from watershed.spark.reading.range_requests import RangeRequest
from watershed.spark.spark_range_readers import build_spark_readers
from watershed.topology.plan import Plan, PlanCluster, PlanSecurity, seal_plan
from watershed.topology.secret_ref import SecretRef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "WATERSHED_TEST_SECRET_OF_THE_DRIVER"
TOPIC_ID = "00000000-0000-0000-0000-000000000001"


def plan() -> Plan:
    """Clusters whose password only the driver has."""
    security = PlanSecurity("SASL_PLAINTEXT", "PLAIN", SecretRef("env", SECRET))
    return seal_plan(Plan("t", (PlanCluster("onprem", ("127.0.0.1:9",), security=security),), ()))


def unit(number: int) -> RangeRequest:
    return RangeRequest(number, "onprem", "orders", TOPIC_ID, 0, 10 * number, 10 * number + 10)


@pytest.mark.spark
def test_an_executor_without_a_secret_says_which(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, "user:password")  # Spark's processes are there already, and do not get it
    readers = build_spark_readers(lambda: spark, plan())
    found = readers.sums([unit(0), unit(1)])
    assert [found[number].state for number in (0, 1)] == ["failed", "failed"]
    assert SECRET in found[0].detail
    with pytest.raises(SparkError, match=rf"^the Spark job of the proof failed: .*{SECRET}.*run the proof again$"):
        readers.differences([RangeComparison(unit(0), unit(1))])


def end_itself(rows: Iterator[int]) -> Iterator[int]:
    os.kill(os.getpid(), signal.SIGKILL)
    yield from rows


def find_no_room(rows: Iterator[int]) -> Iterator[int]:
    yield from rows
    raise MemoryError


def be_mistaken(rows: Iterator[int]) -> Iterator[int]:
    yield from rows
    raise LookupError("nothing there")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("task", "why"),
    [(find_no_room, "an executor ran out of memory"), (be_mistaken, "failed: LookupError: nothing there")],
)
def test_what_a_task_raises_is_named(
    spark: SparkSession, task: Callable[[Iterator[int]], Iterator[int]], why: str
) -> None:
    failing = spark.sparkContext.parallelize([1], 1).mapPartitions(task)
    with pytest.raises(SparkError, match=why), raise_as_spark_error("the job failed", "Run it again"):
        failing.collect()


@pytest.mark.spark
def test_a_python_process_that_is_killed_is_named(spark: SparkSession) -> None:
    killed = spark.sparkContext.parallelize([1], 1).mapPartitions(end_itself)
    why = r"ended from outside, as the kernel does when memory is short"
    with pytest.raises(SparkError, match=why), raise_as_spark_error("the job failed", "Run it again"):
        killed.collect()


def test_a_mistake_of_our_own_is_an_error_and_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python ends with 1 where nobody catches what is raised, and 1 means "different"."""

    def mistaken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(watershed.spark.verify, "prove_flows", mistaken)
    monkeypatch.setattr(watershed.spark.verify, "require_java", lambda: 17)
    topology = Path("topology/examples/chain.yaml")
    assert watershed.spark.verify.main(["--topology", str(topology), "--out", str(tmp_path)]) == 2
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert (summary["verdict"], summary["exit_code"]) == ("error", 2)
    assert "ZeroDivisionError: division by zero" in summary["error"]
    assert "Traceback" in capsys.readouterr().err
