"""The journal: a chain that shows tampering, in memory and in a real topic."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.cutover.fake_log import FakeLog
from tests.cutover.world import World, a_migration
from watershed.clusters.admin import Admin
from watershed.clusters.control_records import read_control_log
from watershed.clusters.control_topics import JOURNAL_TOPIC, ControlWriter
from watershed.clusters.log_tail import LogTail
from watershed.clusters.settings import ConnectionSettings
from watershed.cutover.errors import BrokenChain, Superseded
from watershed.cutover.journal.hash_chain import GENESIS_HASH, Journal, JournalChain, JournalEntry
from watershed.cutover.journal.journal_topic import JournalTopicLog

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

WHO: dict[str, Any] = {"actor": "ann", "plan_hash": "sha256:1", "wave": "all"}


def written(entries: int = 5) -> FakeLog:
    log = FakeLog()
    journal = Journal(log, "shop", "me")
    for number in range(entries):
        journal.append("r1", f"step{number}", "intent", {"n": number}, **WHO)
    return log


def followed(records: list[dict[str, Any]]) -> JournalChain:
    chain = JournalChain("shop")
    chain.follow(list(enumerate(records)))
    return chain


def _edit(log: list[dict[str, Any]]) -> None:
    log[2] = log[2] | {"observation": {"n": 99}}


def _rehash(log: list[dict[str, Any]]) -> None:
    log[2] = JournalEntry(**(log[2] | {"observation": {"n": 99}})).sealed().to_json()


def _remove(log: list[dict[str, Any]]) -> None:
    del log[2]


def _cut_head(log: list[dict[str, Any]]) -> None:
    del log[:2]


@pytest.mark.parametrize(
    ("tamper", "offset"),
    [(_edit, 2), (_rehash, 3), (_remove, 2), (_cut_head, 0)],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_tampering_is_found_at_the_first_entry_that_does_not_fit(
    tamper: Callable[[list[dict[str, Any]]], None], offset: int
) -> None:
    records = written().records
    assert len(followed(records).entries) == 5
    tamper(records)
    with pytest.raises(BrokenChain) as broken:
        followed(records)
    assert broken.value.offset == offset


def test_two_that_write_at_once_one_counts() -> None:
    log = FakeLog()
    first, second = Journal(log, "shop", "first"), Journal(log, "shop", "second")
    second.refresh()
    second_refresh, second.refresh = second.refresh, lambda: second.chain  # type: ignore[method-assign]
    first.append("r1", "run", "intent", {}, **WHO)
    with pytest.raises(Superseded):
        second.append("r2", "run", "intent", {}, **WHO)
    second_refresh()
    for chain in (second.chain, followed(log.records)):
        assert [entry.run for entry in chain.entries] == ["r1"]
        assert [(each.offset, each.run, each.foreign) for each in chain.void] == [(1, "r2", False)]


def test_topologies_share_a_topic_and_nothing_else() -> None:
    log = FakeLog()
    Journal(log, "shop", "me").append("r1", "run", "intent", {}, **WHO)
    Journal(log, "bank", "me").append("r1", "run", "intent", {}, **WHO)
    assert len(followed(log.records).entries) == 1
    assert log.records[1]["previous"] == GENESIS_HASH


@pytest.mark.kafka
def test_on_a_real_broker_chain_and_tampering(kafka_pair: Lab, topic_name: str) -> None:
    cloud = ConnectionSettings("cloud", tuple(kafka_pair.clusters["cloud"].bootstrap.split(",")))
    journal = Journal(JournalTopicLog(cloud), topic_name, "me")
    assert journal.refresh().entries == []
    for number in range(3):
        journal.append("r1", f"step{number}", "intent", {"größe": number}, **WHO)
    again = Journal(JournalTopicLog(cloud), topic_name, "other").refresh()
    assert [entry.step for entry in again.entries] == ["step0", "step1", "step2"]
    assert again.root == journal.chain.root
    last = [
        record
        for record in read_control_log(cloud, JOURNAL_TOPIC)
        if (record.value or {}).get("topology") == topic_name
    ][-1]
    assert last.value is not None
    forged = json.loads(json.dumps(last.value)) | {"step": "step9", "seq": 3, "previous": again.root}
    with ControlWriter(cloud, "intruder") as writer:
        offset = writer.put(JOURNAL_TOPIC, "x", forged, 0)
    third = Journal(JournalTopicLog(cloud), topic_name, "third")
    assert [(each.offset, each.why) for each in third.refresh().foreign] == [
        (offset, "its content does not have its hash")
    ]
    with ControlWriter(cloud, "intruder") as writer:  # what was changed is seen by what follows it
        changed = writer.put(JOURNAL_TOPIC, "x", forged | {"hash": "sha256:" + "7" * 64}, 0)
        follows = JournalEntry(**(last.value | {"seq": 4, "previous": "sha256:" + "7" * 64})).sealed()
        writer.put(JOURNAL_TOPIC, "x", follows.to_json(), 0)
    with pytest.raises(BrokenChain, match="was changed after it was written") as broken:
        third.refresh()
    assert broken.value.offset == changed


@pytest.mark.kafka
def test_a_whole_run_journaled_on_a_real_broker_is_resumed_from_it(kafka_pair: Lab, topic_name: str) -> None:
    """The world is fake, the journal is not: what one process wrote, another continues."""
    cloud = ConnectionSettings("cloud", tuple(kafka_pair.clusters["cloud"].bootstrap.split(",")))
    world = World()
    first = Journal(JournalTopicLog(cloud), topic_name, "first")
    result = a_migration(world, FakeLog(), journal=first, run_id="r1").run(until_step="start_consumers")
    assert result.state == "paused"
    second = Journal(JournalTopicLog(cloud), topic_name, "second")
    assert a_migration(world, FakeLog(), journal=second, run_id="r1").run().state == "done"
    assert [entry.step for entry in second.chain.entries][-1] == "run"


def test_runs_of_every_kind_are_told_apart() -> None:
    from watershed.cli.journal import _runs

    log = FakeLog()
    world = World()
    a_migration(world, log, run_id="r1").run()
    journal = Journal(log, "shop", "other")
    journal.refresh()
    journal.append("r2", "run", "intent", {"kind": "rollback", "wave": "all"}, **WHO)
    journal.append("r2", "drain", "intent", {}, **WHO)
    told = _runs(journal.chain)
    assert [(run["run"], run["kind"], run["state"], run["step"]) for run in told] == [
        ("r1", "migrate", "done", "seal"),
        ("r2", "rollback", None, "drain"),
    ]
    assert sum(run["entries"] for run in told) == len(journal.chain.entries)


@pytest.mark.kafka
def test_an_entry_of_many_groups_and_partitions_is_taken_by_a_real_broker(kafka_pair: Lab, topic_name: str) -> None:
    """A hundred groups that read a thousand partitions each: their positions on both sides are one step's outcome."""
    cloud = ConnectionSettings("cloud", tuple(kafka_pair.clusters["cloud"].bootstrap.split(",")))
    journal = Journal(JournalTopicLog(cloud), topic_name, "me")
    seen = random.Random(7)
    groups = {
        f"group-{n}": {
            side: {f"{side}-orders": {str(p): seen.randrange(10**9, 10**10) for p in range(1_000)}}
            for side in ("source", "from", "target")
        }
        for n in range(100)
    }
    journal.append("r1", "translate_offsets", "outcome", {"groups": groups}, **WHO)
    again = Journal(JournalTopicLog(cloud), topic_name, "other").refresh()
    assert again.entries[0].observation["groups"] == groups


@pytest.mark.kafka
def test_a_journal_whose_entries_were_removed_is_no_empty_one(kafka_pair: Lab, topic_name: str) -> None:
    """Not at the shared journal: at a topic of its own, emptied by DeleteRecords."""
    from confluent_kafka import TopicPartition as WirePartition
    from confluent_kafka.admin import AdminClient

    cloud = ConnectionSettings("cloud", tuple(kafka_pair.clusters["cloud"].bootstrap.split(",")))
    log = JournalTopicLog(cloud)
    log._tail = LogTail(cloud, topic_name)
    with Admin(cloud) as admin:
        admin.create_topic(topic_name, 1, 1, {})
    with ControlWriter(cloud, "journal") as writer:
        for number in range(3):
            writer.put(topic_name, "x", {"topology": topic_name, "n": number}, 0)
    assert len(list(log.read(0))) == 3
    client, upto = AdminClient(cloud.librdkafka()), WirePartition(topic_name, 0, 3)
    client.delete_records([upto])[upto].result(60)
    with pytest.raises(BrokenChain, match="before offset 3 were removed"):
        list(log.read(0))
    assert list(log.read(3)) == []
