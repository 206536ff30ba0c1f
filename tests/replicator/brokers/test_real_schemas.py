"""Schemas and their ids between two real registries, beside real brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replicator.real import read_all, wait_copied, workers
from tests.replicator.real_schemas import PARTITIONS, clients, connect_to, contents, plan_with, registered, until, write
from tests.replicator.status_view import read_statuses
from watershed.clusters.admin import Admin
from watershed.clusters.fake_registry import FakeRegistry
from watershed.clusters.registry.schema import Schema, is_same_schema
from watershed.clusters.registry.schema_id_translation import read_schema_ids
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.live.landing_records import read_first_records
from watershed.replicator.apply import apply_plan
from watershed.replicator.sync.sync_on_apply import apply_sync_differences, find_sync_differences

pytestmark = pytest.mark.kafka


@pytest.mark.slow
def test_a_record_waits_for_its_schema_and_goes_on_by_itself(
    kafka_pair, registry_pair, topic_name: str, tmp_path: Path
) -> None:
    """Copied in transactions here; by sequence numbers in tests/spark/sessions/test_spark_translation.py."""
    urls = {"onprem": registry_pair[0].url, "cloud": registry_pair[1].url}
    plan = plan_with(kafka_pair, topic_name, urls, "transactions", mode="once", ids="translate")  # nobody carries more
    settings = {alias: connect_to(plan)(alias) for alias in ("onprem", "cloud")}
    for each in settings.values():
        with Admin(each) as admin:
            admin.create_topic(topic_name, PARTITIONS, 1, {})
    with clients(urls) as (here, there):
        there.register(f"{topic_name}-taken", Schema('{"type":"string","doc":"taken"}'))
        ids, key = registered(here, topic_name)
        apply_plan(plan, connect_to(plan))
        write(settings["onprem"], topic_name, ids, key, 100)
        with workers(plan, "cloud", tmp_path) as start:
            start()
            wait_copied(settings, plan, topic_name, PARTITIONS)
            later = here.register(f"{topic_name}-value", Schema('{"type":"string","doc":"later"}'))
            write(settings["onprem"], topic_name, [later], key, 100, 100)
            reason = f"schema id {later} of {topic_name}-value is not at the target yet"

            def waiting() -> bool:
                found = [each for each in read_statuses(settings["cloud"]) if each.flow == plan.flows[0].id]
                told = [each for each in found if each.error == reason and each.state == "retrying"]
                return len(told) == PARTITIONS

            until(waiting)
            held = read_all(settings["cloud"], topic_name, PARTITIONS)
            assert all(len(records) < 100 for records in held.values()), "nothing passes it"
            assert [done.error for done in apply_sync_differences(plan, connect_to(plan))] == [None]
            wait_copied(settings, plan, topic_name, PARTITIONS)
        source, target = (read_all(settings[alias], topic_name, PARTITIONS) for alias in ("onprem", "cloud"))
        assert contents(source, here) == contents(target, there)
    ids = read_schema_ids(plan.flows[0], settings["onprem"], settings["cloud"], [topic_name])
    at = {TopicPartition(topic_name, number): 7 for number in range(PARTITIONS)}
    with Admin(settings["onprem"]) as source_admin, Admin(settings["cloud"]) as target_admin:
        lands = read_first_records(settings["cloud"], target_admin, at)
        assert read_first_records(settings["onprem"], source_admin, at, ids=ids) == lands, (
            "a group goes on with the same record"
        )
        assert read_first_records(settings["onprem"], source_admin, at) != lands


@pytest.mark.slow
def test_ids_are_preserved_out_of_a_real_registry_and_never_guessed_at_one_without_import(
    kafka_pair, registry_pair, topic_name: str
) -> None:
    urls = {"onprem": registry_pair[0].url, "cloud": registry_pair[1].url}
    plan = plan_with(kafka_pair, topic_name, urls, ids="preserve")
    with clients(urls) as (here, there):
        ids, _ = registered(here, topic_name)
        before = [subject for subject in there.subjects() if topic_name in subject]  # other tests have theirs
        found = [each for each in find_sync_differences(plan, connect_to(plan)) if each.kind == "schema subject"]
        assert len(found) == 4
        assert not any(each.applied for each in found)
        assert all("say `ids: translate`" in each.why for each in found)
        assert [subject for subject in there.subjects() if topic_name in subject] == before
    with FakeRegistry() as importing:
        urls["cloud"] = importing.url
        plan = plan_with(kafka_pair, topic_name, urls, ids="preserve")
        assert [done.error for done in apply_sync_differences(plan, connect_to(plan))].count(None) >= 4
        with clients(urls) as (here, there):
            for subject in (f"{topic_name}-value", f"{topic_name}-key", f"{topic_name}-address"):
                ours, theirs = here.history(subject), there.history(subject)
                assert [(each.id, each.version) for each in theirs] == [(each.id, each.version) for each in ours]
                assert all(is_same_schema(one.schema, two.schema) for one, two in zip(ours, theirs, strict=True))
            assert [each.id for each in there.history(f"{topic_name}-value")] == ids
        left = [each for each in find_sync_differences(plan, connect_to(plan)) if each.kind == "schema subject"]
        assert left == []
