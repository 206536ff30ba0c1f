"""The journal: a chain that shows tampering, in memory and in a real topic."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from clusters.control import JOURNAL, ControlWriter, read_log
from clusters.settings import ConnectionSettings
from cutover.errors import BrokenChain, Superseded
from cutover.journal import GENESIS, Chain, Journal
from cutover.journal_topic import TopicLog
from tests.cutover.world import FakeLog, World, a_migration

if TYPE_CHECKING:
    from lab.clusters import Lab

WHO: dict[str, Any] = {"actor": "ann", "plan_hash": "sha256:1", "wave": "all"}


def written(entries: int = 5) -> FakeLog:
    log = FakeLog()
    journal = Journal(log, "shop", "me")
    for number in range(entries):
        journal.append("r1", f"step{number}", "intent", {"n": number}, **WHO)
    return log


def followed(records: list[dict[str, Any]]) -> Chain:
    chain = Chain("shop")
    chain.follow(list(enumerate(records)))
    return chain


def _edit(log: list[dict[str, Any]]) -> None:
    log[2] = log[2] | {"observation": {"n": 99}}


def _rehash(log: list[dict[str, Any]]) -> None:
    from cutover.journal import Entry

    log[2] = Entry(**(log[2] | {"observation": {"n": 99}})).sealed().to_json()


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
        assert chain.void == 1


def test_topologies_share_a_topic_and_nothing_else() -> None:
    log = FakeLog()
    Journal(log, "shop", "me").append("r1", "run", "intent", {}, **WHO)
    Journal(log, "bank", "me").append("r1", "run", "intent", {}, **WHO)
    assert len(followed(log.records).entries) == 1
    assert log.records[1]["previous"] == GENESIS


@pytest.mark.kafka
def test_on_a_real_broker_chain_and_tampering(kafka_pair: Lab, topic_name: str) -> None:
    cloud = ConnectionSettings("cloud", tuple(kafka_pair.clusters["cloud"].bootstrap.split(",")))
    journal = Journal(TopicLog(cloud), topic_name, "me")
    assert journal.refresh().entries == []
    for number in range(3):
        journal.append("r1", f"step{number}", "intent", {"größe": number}, **WHO)
    again = Journal(TopicLog(cloud), topic_name, "other").refresh()
    assert [entry.step for entry in again.entries] == ["step0", "step1", "step2"]
    assert again.root == journal.chain.root
    last = [record for record in read_log(cloud, JOURNAL) if (record.value or {}).get("topology") == topic_name][-1]
    assert last.value is not None
    forged = json.loads(json.dumps(last.value)) | {"step": "step9", "seq": 3, "previous": again.root}
    with ControlWriter(cloud, "intruder") as writer:
        offset = writer.put(JOURNAL, "x", forged, 0)
    with pytest.raises(BrokenChain, match="was changed after it was written") as broken:
        Journal(TopicLog(cloud), topic_name, "third").refresh()
    assert broken.value.offset == offset


@pytest.mark.kafka
def test_a_whole_run_journaled_on_a_real_broker_is_resumed_from_it(kafka_pair: Lab, topic_name: str) -> None:
    """The world is fake, the journal is not: what one process wrote, another continues."""
    cloud = ConnectionSettings("cloud", tuple(kafka_pair.clusters["cloud"].bootstrap.split(",")))
    world = World()
    first = Journal(TopicLog(cloud), topic_name, "first")
    result = a_migration(world, FakeLog(), journal=first, run_id="r1").run(until_step="start_consumers")
    assert result.state == "paused"
    second = Journal(TopicLog(cloud), topic_name, "second")
    assert a_migration(world, FakeLog(), journal=second, run_id="r1").run().state == "done"
    assert [entry.step for entry in second.chain.entries][-1] == "run"
