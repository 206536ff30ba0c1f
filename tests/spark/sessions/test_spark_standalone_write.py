"""A job that copies a topic through `kafka-batches` on a real standalone cluster with speculation: tasks run twice,
every record is there once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.replicator.real import plan_for, producer, put, read_all, settings_of
from tests.spark.sessions.test_spark_batches import settled
from tests.spark.standalone import Application, build_cluster
from watershed.clusters.admin import Admin
from watershed.lab.detached_process import send_signal
from watershed.topology.plan import encode_plan

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(900)]

COPY = """
import sys
from watershed.spark.session import end_session, create_spark_session
from watershed.spark.source import register_format
session = create_spark_session("copy")
register_format(session)
plan, source, target = sys.argv[1:]
rows = session.read.format("kafka-batches").options(topology=plan, cluster="onprem", topics=source)
rows = rows.option("maxOffsetsPerPartition", 500).load()
to = rows.write.format("kafka-batches").mode("append").options(topology=plan, cluster="cloud", topic=target)
to.option("transactionTimeout", 120).save()
end_session(session)
"""
SPECULATION = {
    "spark.cores.max": "4",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # both executors are there before the first task
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "10ms",
}


def test_tasks_that_run_twice_write_once(kafka_pair, topic_name: str, tmp_path: Path) -> None:
    settings = settings_of(kafka_pair)
    for alias in ("onprem", "cloud"):
        with Admin(settings[alias]) as admin:
            admin.create_topic(topic_name, 2)
    sending = producer(settings["onprem"], **{"compression.type": "lz4", "batch.num.messages": 100})
    put(sending, topic_name, 8_000)
    sending.flush()
    path = tmp_path / "plan.json"
    path.write_text(encode_plan(plan_for(settings, topic_name, topic_name)))
    with build_cluster(tmp_path / "standalone") as cluster:
        arguments = ["-c", COPY, str(path), topic_name, topic_name]
        application = Application(tmp_path / "application", cluster, arguments, SPECULATION)
        try:
            application.until(lambda: application.events("SparkListenerJobStart"))
            slow = cluster.executors()[0]
            assert send_signal(slow.process, signal.SIGSTOP)
            application.until(lambda: len(application.events("SparkListenerTaskEnd")) >= 4)
            send_signal(slow.process, signal.SIGCONT)
            assert application.process.wait(180) == 0, application.said()[-3000:]
            starts = [start["Task Info"]["Speculative"] for start in application.events("SparkListenerTaskStart")]
            assert any(starts)
            assert len(starts) > 16
        finally:
            application.end()
    settled(settings["cloud"], topic_name)
    here, there = (read_all(settings[alias], topic_name, 2) for alias in ("onprem", "cloud"))
    for partition in range(2):
        assert sorted(str(record) for _, record in there[partition]) == sorted(str(r) for _, r in here[partition])
