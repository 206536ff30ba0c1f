"""Translated schema ids on real brokers, between real registries: whoever dies, the copy is exact, and it is proven."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.replicator.faults import times
from tests.replicator.real import read_all, wait_copied, wait_progress, workers
from tests.replicator.real_schemas import PARTITIONS, clients, connect_to, contents, plan_with, registered, until, write
from tests.replicator.registries import WIDER
from watershed.clusters.admin import Admin
from watershed.clusters.partition_status_records import read_partition_statuses
from watershed.clusters.registry.schema import Schema, SchemaReference
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.sync_reports import read_sync_reports
from watershed.replicator.apply import apply_plan
from watershed.replicator.sync.sync_on_apply import find_sync_differences
from watershed.spark.proof_request import ProofRequest
from watershed.spark.proof_run import prove_flows
from watershed.topology.plan import seal_plan
from watershed.topology.sync_settings import SyncSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watershed.lab.clusters import Lab
    from watershed.lab.schema_registry import SchemaRegistryProcess

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]


def notes(target: ConnectionSettings, flow: str) -> list[str]:
    return [each.note or "" for each in read_partition_statuses(target) if each.flow == flow]


@pytest.mark.soak
def test_translated_ids_lead_to_the_same_schemas_whoever_dies(
    kafka_pair: Lab, registry_pair: list[SchemaRegistryProcess], topic_name: str, tmp_path: Path, spark: SparkSession
) -> None:
    urls = {"onprem": registry_pair[0].url, "cloud": registry_pair[1].url}
    plan = plan_with(kafka_pair, topic_name, urls, ids="translate")
    settings = {alias: connect_to(plan)(alias) for alias in ("onprem", "cloud")}
    for each in settings.values():
        with Admin(each) as admin:
            admin.create_topic(topic_name, PARTITIONS, 1, {})
    with clients(urls) as (here, there):
        for number in range(5):  # so that ids differ
            there.register(f"{topic_name}-taken-{number}", Schema(f'{{"type":"string","doc":"{number}"}}'))
        ids, key = registered(here, topic_name)
        assert [each.name for each in find_sync_differences(plan, connect_to(plan)) if each.applied] == [
            f"{topic_name}-key",
            f"{topic_name}-address",
            f"{topic_name}-value",
            f"{topic_name}-value",
        ]
        write(settings["onprem"], topic_name, ids, key, 300)
        apply_plan(plan, connect_to(plan))
        twins = there.history(f"{topic_name}-value")
        assert len(twins) == 2
        assert not {each.id for each in twins} & set(ids)
        with workers(plan, "cloud", tmp_path, times(session=3)) as start:
            worker = start()
            wait_copied(settings, plan, topic_name, PARTITIONS)
            # the same records, and nobody says that ids were translated
            untold = seal_plan(replace(plan, flows=tuple(replace(each, sync=SyncSettings()) for each in plan.flows)))
            different = prove_flows(untold, ProofRequest(wait=0), tmp_path / "untold", session=lambda: spark)
            assert different["verdict"] == "different"
            write(settings["onprem"], topic_name, ids, key, 20_000, 300)
            wait_progress(settings, plan, topic_name, PARTITIONS, 310)
            worker.kill()
            start()
            wait_copied(settings, plan, topic_name, PARTITIONS)

            # a version that the source gets now is carried by the worker, and its records wait for it
            later = here.register(
                f"{topic_name}-value",
                Schema(
                    WIDER.replace('"n"', '"m"'), references=(SchemaReference("x.Address", f"{topic_name}-address", 1),)
                ),
            )
            write(settings["onprem"], topic_name, [later], key, 500, 40_000)
            wait_copied(settings, plan, topic_name, PARTITIONS)
            carried = [report for report in read_sync_reports(settings["cloud"]) if report.flow == plan.flows[0].id]
            assert not [report for report in carried if report.state in ("refused", "failed")]
            until(lambda: any("passed as they are" in note for note in notes(settings["cloud"], plan.flows[0].id)))
        source, target = (read_all(settings[alias], topic_name, PARTITIONS) for alias in ("onprem", "cloud"))
        assert contents(source, here) == contents(target, there)
        assert [len(each) for each in source.values()] == [len(each) for each in target.values()]
        assert {len(source[0]) > 0, len(source[1]) > 0} == {True}
        assert source != target, "the bytes differ in their ids"
    document = prove_flows(plan, ProofRequest(), tmp_path / "proof", session=lambda: spark)
    assert (document["verdict"], document["unproven"]) == ("proven", 0), document
