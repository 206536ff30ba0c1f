"""F11 to F16 on real brokers: each stops its partition loudly with exact ranges, the others go on, and the remedy that
is reported heals it when it is followed (AC-72, AC-80, AC-81, AC-82, AC-82b)."""

from __future__ import annotations

import pytest

from tests.replicator.real import applied, read_all, settings_of, wait_copied, workers
from tests.replicator.states_scene import (
    QUICK,
    commands,
    create,
    delete_records,
    delete_topics,
    in_state,
    produce,
    report,
    typed,
    until,
    written,
)
from watershed.clusters.admin import Admin
from watershed.clusters.control_records import read_control_log
from watershed.clusters.control_topics import FLOWS_TOPIC, JOURNAL_TOPIC
from watershed.clusters.flow_records import JOURNALED_PREFIX
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.ledger.ledger import read_ledger

pytestmark = pytest.mark.kafka


def numbers(settings, topic: str) -> list[int]:
    """The keys, in order."""
    return [int(record[0]) for _, record in read_all(settings, topic, 1)[0]]


def copied(settings, plan, topic: str, expected: list[int]) -> None:
    until(lambda: len(numbers(settings["cloud"], topic)) >= len(expected), f"{topic} is copied")
    assert numbers(settings["cloud"], topic) == expected


def test_every_fault_stops_its_partition_and_its_remedy_heals_it(kafka_pair, topic_name, tmp_path, capsys):
    settings = settings_of(kafka_pair)
    onprem, cloud = settings["onprem"], settings["cloud"]
    faults = ["expired", "lower", "higher", "gone", "lost", "renewed", "foreign", "fine"]
    topic = {fault: f"{topic_name}-{fault}" for fault in faults}
    path = tmp_path / "states.yaml"
    plan = written(path, settings, topic_name, list(topic.values()))
    flow_id = plan.flows[0].id
    create(onprem, *topic.values())
    for each in topic.values():
        produce(onprem, each, 0, 200)
    applied(settings, plan)
    with workers(plan, "cloud", tmp_path, QUICK) as start:
        start()
        for each in topic.values():
            wait_copied(settings, plan, each, 1)

        # Behind the copier's back, while it is paused.
        assert typed(f"topology flow pause {flow_id} FILE", path) == 0
        in_state(settings, plan, topic["fine"], "paused")
        for each in topic.values():
            produce(onprem, each, 200, 100)
        delete_records(onprem, topic["expired"], 250)
        delete_topics(onprem, topic["lower"], topic["higher"], topic["gone"])
        delete_topics(cloud, topic["lost"], topic["renewed"])
        create(onprem, topic["lower"], topic["higher"])
        create(cloud, topic["renewed"])
        produce(onprem, topic["lower"], 1_000, 50)
        produce(onprem, topic["higher"], 1_000, 400)
        produce(cloud, topic["foreign"], 9_000, 5)
        assert typed(f"topology flow resume {flow_id} FILE", path) == 0

        found = {
            fault: in_state(settings, plan, topic[fault], state)
            for fault, state in {
                "expired": "source_expired",
                "lower": "source_recreated",
                "higher": "source_recreated",
                "gone": "source_gone",
                "lost": "target_gone",
                "renewed": "target_gone",
                "fine": "running",
            }.items()
        }
        # A stranger's records make our sequence numbers wrong: seen by the broker's state, or by the last batch.
        until(
            lambda: report(settings, plan, topic["foreign"]).state in ("duplicated", "target_foreign_write"), "foreign"
        )
        found["foreign"] = report(settings, plan, topic["foreign"])

        # Others of the same flow go on.
        copied(settings, plan, topic["fine"], list(range(300)))
        # Coordinates.
        assert found["expired"].seen["source"] == [200, 250]
        assert "200 to 249" in found["expired"].error
        assert found["lower"].seen["source"] == [0, 50]
        assert found["higher"].seen["source"] == [0, 400]
        for fault, side in (("lower", onprem), ("higher", onprem), ("renewed", cloud)):
            with Admin(side) as admin:
                assert found[fault].seen["found_id"] == str(admin.topic(topic[fault]).topic_id)
            assert found[fault].seen["expected_id"] in found[fault].error
        # Nothing was resurrected, nothing was appended.
        with Admin(onprem) as admin:
            assert topic["gone"] not in admin.topics()
        with Admin(cloud) as admin:
            assert topic["lost"] not in admin.topics()
        for fault in ("expired", "lower", "higher", "gone"):
            assert numbers(cloud, topic[fault]) == list(range(200)), fault
        assert numbers(cloud, topic["renewed"]) == []
        assert numbers(cloud, topic["foreign"]) == [*range(200), *range(9_000, 9_005)]

        # F11: follow the remedy.
        (accept,) = commands(found["expired"].remedy)
        assert typed(accept, path) == 2  # no terminal and no --yes
        assert "lost for good: source offsets 200 to 249" in capsys.readouterr().out
        assert typed(accept, path, "--yes") == 0
        copied(settings, plan, topic["expired"], [*range(200), *range(250, 300)])
        offsets = read_ledger(cloud, flow_id).map(flow_id, topic["expired"], 0)
        assert [offsets.to_target(at, 250) for at in (0, 199, 200, 225, 249, 250, 299)] == [
            0, 199, 200, 200, 200, 200, 249,
        ]  # fmt: skip
        assert offsets.to_source(200) == 250
        assert "were given up" in in_state(settings, plan, topic["expired"], "running").note
        (line,) = [
            value
            for value in (each.value or {} for each in read_control_log(cloud, JOURNAL_TOPIC))
            if value.get("record") == "order" and value.get("topic") == topic["expired"]
        ]
        assert (line["kind"], line["lost"], line["state"]) == ("accept-gap", [200, 250], "source_expired")

        # F13, F16, foreign writes: empty the target as the command says, then copy again.
        for fault in ("lower", "higher", "lost", "renewed", "foreign"):
            reseed = reseed_in(found[fault].remedy)
            if fault == "renewed":
                continue  # empty already
            assert typed(reseed, path, "--yes") == 1, fault
            told = capsys.readouterr().err
            if fault == "lost":
                assert f"--create --topic {topic[fault]} --partitions 1" in told
                create(cloud, topic[fault])
            elif fault == "lower":
                assert "kafka-delete-records" in told
                delete_records(cloud, topic[fault], -1)
            else:
                assert "still holds records" in told
                delete_topics(cloud, topic[fault])
                create(cloud, topic[fault])
        for fault in ("lower", "higher", "lost", "renewed", "foreign"):
            reseed = reseed_in(found[fault].remedy)
            assert typed(reseed, path, "--yes", "--wait", "0") == 3, fault
        expected = {
            "lower": list(range(1_000, 1_050)),
            "higher": list(range(1_000, 1_400)),
            "lost": list(range(300)),
            "renewed": list(range(300)),
            "foreign": list(range(300)),
        }
        for fault, records in expected.items():
            copied(settings, plan, topic[fault], records)
            in_state(settings, plan, topic[fault], "running")
        with Admin(cloud) as admin:
            span = admin.offsets([TopicPartition(topic["lower"], 0)])[TopicPartition(topic["lower"], 0)]
        offsets = read_ledger(cloud, flow_id).map(flow_id, topic["lower"], 0)
        assert (span.start, span.end) == (200, 250)
        assert [offsets.to_target(at, span.end) for at in (0, 49)] == [200, 249]
        # And they go on from there.
        for each in topic.values():
            if each != topic["gone"]:
                produce(onprem, each, 5_000, 10)
        for fault, records in expected.items():
            copied(settings, plan, topic[fault], [*records, *range(5_000, 5_010)])
        assert in_state(settings, plan, topic["gone"], "source_gone").remedy


def reseed_in(remedy: str) -> str:
    """The command to copy again, with its options: the last of that name."""
    return [each for each in commands(remedy) if " reseed " in each][-1]


def test_a_flow_that_accepts_gaps_by_itself_says_so(kafka_pair, topic_name, tmp_path):
    settings = settings_of(kafka_pair)
    create(settings["onprem"], topic_name)
    produce(settings["onprem"], topic_name, 0, 20)
    path = tmp_path / "gaps.yaml"
    plan = applied(settings, written(path, settings, topic_name, [topic_name], "on_gap: continue"))
    flow_id = plan.flows[0].id
    with workers(plan, "cloud", tmp_path, QUICK) as start:
        start()
        copied(settings, plan, topic_name, list(range(20)))
        assert typed(f"topology flow pause {flow_id} FILE", path) == 0
        in_state(settings, plan, topic_name, "paused")
        produce(settings["onprem"], topic_name, 20, 20)
        delete_records(settings["onprem"], topic_name, 35)
        assert typed(f"topology flow resume {flow_id} FILE", path) == 0
        copied(settings, plan, topic_name, [*range(20), *range(35, 40)])
        said = in_state(settings, plan, topic_name, "running").note
    assert said is not None
    assert "source offsets 20 to 34 were given up" in said
    assert said.endswith("by on_gap: continue")
    records = read_control_log(settings["cloud"], FLOWS_TOPIC)  # by a worker, which may not write to the journal
    journal = [each.value or {} for each in records if each.key.startswith(JOURNALED_PREFIX)]
    lines = [value for value in journal if value.get("topic") == topic_name]
    assert [(line["actor"], line["lost"]) for line in lines] == [("on_gap: continue", [20, 35])]
    offsets = read_ledger(settings["cloud"], flow_id).map(flow_id, topic_name, 0)
    assert [offsets.to_target(at, 25) for at in (19, 20, 34, 35)] == [19, 20, 20, 20]
