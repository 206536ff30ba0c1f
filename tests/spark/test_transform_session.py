"""How a worker with `--transforms` starts; nothing here starts Spark."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from watershed.replicator.batch.untransformed_selection import UntransformedPart
from watershed.replicator.partition_key import PartitionKey
from watershed.replicator.transport.transform_thread import TransformFailed, TransformRequest
from watershed.spark.session import merge_spark_settings
from watershed.spark.transform import spark_engine, transform_session
from watershed.spark.transform.compiled_transform import CompiledTransform
from watershed.spark.transform.expression_rules import WrongExpression
from watershed.spark.transform.spark_engine import SparkTransformEngine
from watershed.topology.plan import Plan, PlanFlow
from watershed.topology.record_transform import RecordTransform
from watershed.topology.selectors import Selector, TopicSelection

RIGHT = RecordTransform(where="value is not null")
WRONG = RecordTransform(where="value is not null and")  # v0.1.0 took it
JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def compile_played(_session: object, transform: RecordTransform) -> CompiledTransform:
    if transform.where == WRONG.where:
        raise WrongExpression("where", WRONG.where or "", "its last word is one that Spark takes for a name")
    return CompiledTransform(transform, "hash")


@pytest.fixture(autouse=True)
def _played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transform_session, "create_spark_session", lambda *_, **__: SimpleNamespace())
    monkeypatch.setattr(transform_session, "end_session", lambda _session: None)
    monkeypatch.setattr(transform_session, "compile_transform", compile_played)
    monkeypatch.setattr(spark_engine, "compile_transform", compile_played)


@contextmanager
def open_engine(*transforms: RecordTransform, supervised: bool = False) -> Iterator[SparkTransformEngine]:
    topics = TopicSelection((Selector("literal", "orders"),))
    flows = [
        PlanFlow(f"flow-{number}", "a", "b", topics, transform=transform) for number, transform in enumerate(transforms)
    ]
    plan = cast(Plan, SimpleNamespace(topology="orders", flows=flows))
    with transform_session.open_transform_engine(plan, "b", supervised=supervised) as engine:
        yield engine


def test_a_wrong_expression_of_one_flow_keeps_no_other_flow_from_being_served(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "watershed.transforms")
    with open_engine(RIGHT, WRONG) as engine:
        request = TransformRequest(PartitionKey("flow-1", "t", "u", 0), UntransformedPart(0, 2), {}, 1_000)
        with pytest.raises(TransformFailed, match=r"^`transform.where`: its last word .*`topology apply`") as caught:
            engine.transform(WRONG, [request])
        assert caught.value.is_lasting  # its partitions halt
    [told] = caplog.records
    assert (told.getMessage(), cast(Any, told).flow) == ("expression refused", "flow-1")
    assert cast(Any, told).reason.startswith("`transform.where`: its last word")


def test_where_every_flow_is_wrong_a_worker_says_so_at_once() -> None:
    with pytest.raises(WrongExpression, match="its last word"), open_engine(WRONG, WRONG):
        raise AssertionError("it serves nothing")


def test_a_supervised_worker_waits_for_an_expression_that_is_right() -> None:
    """Its supervisor would start it again and again; so the partitions say what is wrong."""
    with open_engine(WRONG, supervised=True):
        pass


def test_java_is_told_when_to_optimise_whatever_java_it_is() -> None:
    told = transform_session._SETTINGS[JAVA_OPTIONS].split()
    assert told.index("-XX:+IgnoreUnrecognizedVMOptions") < min(
        at for at, option in enumerate(told) if option.startswith("-XX:Tier4")
    )
    assert not any("TieredStopAtLevel" in option for option in told)  # hashes are fast in the optimising compiler only
    merged = merge_spark_settings(transform_session._SETTINGS, {}, {})
    assert merged[JAVA_OPTIONS].split() == told  # the session's own stop at the first compiler


def test_java_knows_each_of_these_options() -> None:
    """A misspelt one would be passed over in silence, because others than HotSpot lack them."""
    told = [option for option in transform_session._SETTINGS[JAVA_OPTIONS].split() if "IgnoreUnrec" not in option]
    subprocess.run(["java", *told, "-XX:TieredStopAtLevel=1", "-version"], check=True, capture_output=True, timeout=60)
