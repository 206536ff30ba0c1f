"""Groups of every kind move between real brokers, with the client programs that people use as members."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as WirePartition

from tests.cutover.moving import POLICY, Moving, streams_group, streams_in_a_classic_group, with_groups
from tests.replicator.readers import READERS, isolated, positioned
from tests.replicator.real import (
    applied,
    plan_for,
    producer,
    put,
    read_all,
    settings_of,
    wait_copied,
    wait_decided,
    workers,
)
from tests.replicator.states_scene import until
from watershed.clusters.admin import Admin
from watershed.clusters.group_offsets import CommittedPosition, GroupOffsets
from watershed.clusters.topic_partition import TopicPartition
from watershed.cutover.actions import FindReaders, ReadGroup
from watershed.cutover.errors import Refused
from watershed.cutover.groups import consumer_steps as groups
from watershed.cutover.observations import ObservedGroup, ObservedReaders
from watershed.cutover.offsets import decode_offsets, encode_offsets
from watershed.cutover.step_definitions import STEPS
from watershed.lab import console_consumer
from watershed.topology.sync_settings import GroupSync, SyncSettings

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
PARTITIONS = 2


@pytest.fixture(scope="module")
def copied(kafka_pair, tmp_path_factory):
    """A topic with markers and aborted records, copied whole: (settings, plan, topic). No worker runs any more."""
    settings, topic = settings_of(kafka_pair), f"moved-{uuid.uuid4().hex[:8]}"
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic, PARTITIONS)
    sending = producer(settings["onprem"], **{"transactional.id": topic})
    sending.init_transactions()
    for number in range(12):
        sending.begin_transaction()
        put(sending, topic, 40, start=number * 40)
        sending.flush()
        (sending.abort_transaction if number % 4 == 0 else sending.commit_transaction)()
    wait_decided(settings["onprem"], topic)
    plan = applied(settings, plan_for(settings, topic, topic))
    with workers(plan, "cloud", tmp_path_factory.mktemp("copied")) as start:
        start()
        wait_copied(settings, plan, topic, PARTITIONS)
    return settings, plan, topic


def places(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(PARTITIONS)]


def consumers(settings, group: str, topic: str, *each: dict, protocol: str = "classic") -> list[Consumer]:
    """Members that were given their partitions, one for each dictionary of its own settings."""
    quick = {"session.timeout.ms": 6_000} if protocol == "classic" else {}
    config = {"group.id": group, "group.protocol": protocol, "enable.auto.commit": False}
    found = [Consumer(settings.librdkafka(config | {"auto.offset.reset": "earliest"} | quick | own)) for own in each]
    for member in found:
        member.subscribe([topic])
    deadline = time.monotonic() + 180
    while not all(member.assignment() for member in found):
        assert time.monotonic() < deadline, "no partitions were given"
        for member in found:
            member.poll(0.1)
    return found


def consumer(settings, group: str, topic: str, protocol: str = "classic", **own) -> Consumer:
    return consumers(settings, group, topic, own, protocol=protocol)[0]


def committed(settings, group: str, topic: str, *offsets: int, text: str = "") -> None:
    with GroupOffsets(settings) as at:
        wanted = {p: CommittedPosition(offset, text) for p, offset in zip(places(topic), offsets, strict=True)}
        assert at.commit(group, wanted) == {}


def shown(moving: Moving, side, group: str) -> ObservedGroup:
    found = moving.world.answer(ReadGroup(side, group))
    assert isinstance(found, ObservedGroup), found
    return found


def ends(settings, topic: str) -> list[int]:
    with Admin(settings) as admin:
        return [span.end for _, span in sorted(admin.offsets(places(topic)).items())]


def committed_epochs(settings, group: str, topic: str) -> set[int | None]:
    """The leader epochs beside the group's positions."""
    reading = Consumer(settings.librdkafka({"group.id": group}))
    try:
        found = reading.committed([WirePartition(topic, number) for number in range(PARTITIONS)], timeout=60)
        return {each.leader_epoch for each in found}
    finally:
        reading.close()


def test_groups_of_every_client_program_go_on_with_the_very_next_record(copied, topic_name):
    """Java's classic, KIP-848 and share consumers and confluent-kafka's, one of them renamed on its way."""
    settings, plan, topic = copied
    names = {f"{topic_name}-{name.replace(' ', '-')}": name for name in READERS}
    by_name = {name: group for group, name in names.items()}
    called = {by_name["confluent classic"]: f"{topic_name}-elsewhere"}
    moving = Moving(
        with_groups(plan, SyncSettings(groups=GroupSync(rename=tuple(called.items())))),
        settings, {topic: PARTITIONS}, tuple(names),
        replace(POLICY, redelivery=frozenset({by_name["java share"]})),
    )  # fmt: skip
    here, there = (read_all(settings[alias], topic, PARTITIONS) for alias in ("onprem", "cloud"))
    everything = {number: [record for _, record in rows] for number, rows in here.items()}

    def read_here(at: int, group: str, name: str):
        positioned(settings["onprem"], name, group, dict.fromkeys(places(topic), 0))
        return READERS[name](settings["onprem"], topic, group, 60 + 2 * at)

    def read_there(group: str, name: str):
        target = moving.context.translated(group).target
        left = sum(offset >= target[TopicPartition(topic, number)] for number in there for offset, _ in there[number])
        return READERS[name](settings["cloud"], topic, called.get(group, group), left)

    with ThreadPoolExecutor(len(names)) as pool:
        first = dict(zip(names, pool.map(read_here, range(9), names, names.values()), strict=True))
        [problem] = moving.preflight()
        share = by_name["java share"]
        assert f"group {share} has share.isolation.level=read_committed at onprem and read_uncommitted" in problem
        isolated(settings["cloud"], share)
        until(lambda: moving.preflight() == [], "the group's settings are known to the broker")
        kinds = {names[group]: found["kind"] for group, found in moving.context.outcomes["preflight"]["groups"].items()}
        moving.step("stop_consumers", groups.stop_consumers)
        for step in ("translate_offsets", "commit_offsets"):
            moving.step(step, STEPS[step].act)
        # A position with an epoch that the target has not reached makes a Java consumer read nothing.
        moved = [group for group in names if group != share]
        assert set().union(*(committed_epochs(settings["onprem"], group, topic) for group in moved)) != {None}
        for group in moved:
            assert committed_epochs(settings["cloud"], called.get(group, group), topic) == {None}
        for step in ("landing_test", "start_consumers"):
            moving.step(step, STEPS[step].act)
        second = dict(zip(names, pool.map(read_there, names, names.values()), strict=True))
    assert kinds == {
        "java classic": "classic", "java consumer": "consumer", "java share": "share",
        "confluent classic": "classic", "confluent consumer": "consumer",
    }  # fmt: skip
    for group, name in names.items():
        read = {
            number: [record for _, record in first[group].get(number, [])]
            + [record for _, record in second[group].get(number, [])]
            for number in everything
        }
        if name == "java share":
            again = decode_offsets(moving.context.outcomes["translate_offsets"]["groups"][group]["again"])
            for number, records in everything.items():
                extra = [record for record in records for _ in range(read[number].count(record) - 1)]
                assert set(read[number]) >= set(records)
                assert len(extra) <= again.get(TopicPartition(topic, number), 0)
        else:
            assert read == everything, name
    assert shown(moving, "target", by_name["confluent classic"]).offsets
    with GroupOffsets(settings["cloud"]) as at:
        assert by_name["confluent classic"] not in at.listed()


def test_static_members_are_waited_for_and_what_stands_beside_offsets_goes_along(copied, topic_name):
    """C15, too: two members leave one after the other, so the group rebalances while it is looked at."""
    settings, plan, topic = copied
    here = settings["onprem"]
    members = consumers(here, topic_name, topic, *({"group.instance.id": f"{topic_name}-{n}"} for n in (1, 2)))
    end = ends(here, topic)
    for number in range(PARTITIONS):  # in front of holes, and behind everything
        at = WirePartition(topic, number, (5, end[number])[number], metadata=f"text {number}")
        members[0].commit(offsets=[at], asynchronous=False)

    def closing(_question: str) -> bool:
        while members:
            members.pop().close()
        return True

    moving = Moving(plan, settings, {topic: PARTITIONS}, (topic_name,), confirm=closing)
    assert moving.preflight() == []
    moving.step("stop_consumers", groups.stop_consumers)
    assert not members
    assert any(f"{topic_name}-1, {topic_name}-2" in text for text in moving.said)
    assert any("keeps its place until its session.timeout.ms is over" in text for text in moving.said)
    moving.step("translate_offsets", groups.translate_offsets)
    moving.step("commit_offsets", groups.commit_offsets)
    found = shown(moving, "target", topic_name)
    kept = TopicPartition(topic, 1)
    assert found.texts == {kept: shown(moving, "source", topic_name).texts[kept]}
    assert found.texts[kept].startswith("text 1")  # librdkafka adds a zero byte
    assert found.offsets[TopicPartition(topic, 1)] == ends(settings["cloud"], topic)[1]
    assert any("keeps text beside its offsets of" in text for text in moving.said)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_comes_alive_on_the_target_is_not_reset(copied, topic_name, protocol):
    """C14, C20: whoever it is, is named, and keeps its position."""
    settings, plan, topic = copied
    committed(settings["onprem"], topic_name, topic, 5, 6)
    moving = Moving(plan, settings, {topic: PARTITIONS}, (topic_name,))
    assert moving.preflight() == []
    moving.step("translate_offsets", groups.translate_offsets)
    early = consumer(settings["cloud"], topic_name, topic, protocol, **{"client.id": "too-early"})
    try:
        early.commit(offsets=[WirePartition(topic, 0, 1)], asynchronous=False)
        with pytest.raises(Refused, match=r"1 member: too-early at .*a live group is never reset"):
            moving.step("commit_offsets", groups.commit_offsets)
        wanted = {TopicPartition(topic, 0): 3}
        [error] = _forced(moving, topic_name, wanted)
        assert "UNKNOWN_MEMBER_ID" in error  # the broker's own word, if we had looked too early
        assert [each for each in moving.preflight() if "alive at cloud (1 member: too-early" in each]
    finally:
        early.close()
    assert shown(moving, "target", topic_name).offsets == {TopicPartition(topic, 0): 1}
    with pytest.raises(Refused, match="has other offsets at cloud already"):
        moving.step("commit_offsets", groups.commit_offsets)


def _forced(moving: Moving, group: str, wanted: dict[TopicPartition, int]) -> list[str]:
    with GroupOffsets(moving.settings["cloud"]) as at:
        return list(at.commit(group, {place: CommittedPosition(offset) for place, offset in wanted.items()}).values())


def test_a_commit_that_was_cut_off_is_finished_and_taken_back_exactly(copied, topic_name):
    """C18: one of two partitions was written when the driver died; then the run is rolled back after all."""
    settings, plan, topic = copied
    committed(settings["onprem"], topic_name, topic, 7, 9, text="mine")
    moving = Moving(plan, settings, {topic: PARTITIONS}, (topic_name,))
    assert moving.preflight() == []
    moving.step("translate_offsets", groups.translate_offsets)
    wanted = moving.context.translated(topic_name).target
    place = TopicPartition(topic, 0)
    assert not _forced(moving, topic_name, {place: wanted[place]})
    note = moving.step("commit_offsets", groups.commit_offsets)
    assert note["committed"] == {topic_name: encode_offsets(wanted)}
    assert shown(moving, "target", topic_name).offsets == wanted
    moved = {place: wanted[place] + 3}
    committed_there = {**wanted, **moved}
    committed(settings["cloud"], topic_name, topic, *(committed_there[each] for each in places(topic)))
    moving.step("undo_commit_offsets", groups.undo_commit_offsets)
    there, here = shown(moving, "target", topic_name), shown(moving, "source", topic_name)
    assert there.kind == "unknown"
    assert here.offsets[place] > 7
    assert here.offsets[TopicPartition(topic, 1)] == 9
    assert here.texts == {TopicPartition(topic, 1): "mine"}  # what did not move keeps what stood beside it


def test_start_offsets_that_were_cut_off_are_finished_and_taken_back_exactly(copied, topic_name):
    """The same for a share group, whose positions go by another request, and whose group by another's state."""
    settings, plan, topic = copied
    before = dict(zip(places(topic), (7, 9), strict=True))
    positioned(settings["onprem"], "java share", topic_name, before)
    isolated(settings["cloud"], topic_name)
    policy = replace(POLICY, redelivery=frozenset({topic_name}))
    moving = Moving(plan, settings, {topic: PARTITIONS}, (topic_name,), policy)
    until(lambda: moving.preflight() == [], "the group's settings are known to the broker")
    moving.step("translate_offsets", groups.translate_offsets)
    wanted = moving.context.translated(topic_name).target
    place = places(topic)[0]
    with GroupOffsets(settings["cloud"]) as at:
        until(lambda: not any(at.alter_share(topic_name, {place: wanted[place]}).values()), "one of two is written")
    assert shown(moving, "target", topic_name).offsets == {place: wanted[place]}
    note = moving.step("commit_offsets", groups.commit_offsets)
    assert note["committed"] == {topic_name: encode_offsets(wanted)}
    found = shown(moving, "target", topic_name)
    assert (found.kind, found.offsets) == ("share", wanted)
    moving.step("undo_commit_offsets", groups.undo_commit_offsets)
    assert not shown(moving, "target", topic_name).offsets
    assert shown(moving, "source", topic_name).offsets == before


def test_streams_applications_are_recognised_and_refused_by_their_topics(copied, topic_name):
    """In a classic group by the assignor, and by names once it has stopped; KIP-1071 by its topology. A position that
    was committed from outside is what a KIP-1071 application goes on with."""
    settings, plan, topic = copied
    kip = f"kip1071-{topic_name}"
    store = f"{topic_name}-totals-changelog"
    committed(settings["onprem"], topic_name, topic, 5, 6)
    committed(settings["onprem"], kip, topic, 5, 6)
    moving = Moving(plan, settings, {topic: PARTITIONS}, (topic_name, kip))
    for alias in settings:
        with Admin(settings[alias]) as admin:
            admin.create_topic(f"{kip}-totals-changelog", PARTITIONS)
    with (
        streams_in_a_classic_group(settings["onprem"], topic_name, topic),
        streams_group(settings["onprem"], kip, topic, f"{kip}-totals-changelog"),
    ):
        classic, modern = (shown(moving, "source", group) for group in (topic_name, kip))
        assert (classic.kind, classic.internal, classic.reads) == ("streams", (), {topic})
        assert (modern.kind, modern.internal, modern.reads) == ("streams", (f"{kip}-totals-changelog",), {topic})
        assert classic.offsets == modern.offsets == dict(zip(places(topic), (5, 6), strict=True))
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(store, PARTITIONS)
    again = Moving(plan, settings, {topic: PARTITIONS}, (topic_name, kip))
    problems = "; ".join(again.preflight())
    assert f"topics that are not in wave all: {kip}-totals-changelog" in problems
    assert f"{store}" in problems
    rebuilt = Moving(plan, settings, {topic: PARTITIONS}, (kip,), replace(POLICY, rebuild=frozenset({kip})))
    assert rebuilt.preflight() == []
    rebuilt.step("stop_consumers", groups.stop_consumers)
    rebuilt.step("translate_offsets", groups.translate_offsets)
    wanted = rebuilt.context.translated(kip).target
    assert not _forced(rebuilt, kip, {places(topic)[1]: wanted[places(topic)[1]]}), "a driver that died in the middle"
    for step in ("commit_offsets", "landing_test"):
        rebuilt.step(step, STEPS[step].act)
    with streams_group(settings["cloud"], kip, topic, f"{kip}-totals-changelog"):
        found = shown(rebuilt, "target", kip)
        assert (found.kind, found.members, found.offsets) == ("streams", 1, wanted)
    until(lambda: not shown(rebuilt, "target", kip).members, "it has left")
    rebuilt.step("undo_commit_offsets", groups.undo_commit_offsets)
    assert not shown(rebuilt, "target", kip).offsets
    assert shown(rebuilt, "source", kip).offsets == dict(zip(places(topic), (5, 6), strict=True))


def test_consumers_have_read_the_source_when_only_markers_follow(copied, topic_name):
    """producers_first: the barrier lies behind a transaction's marker, where no consumer ever commits."""
    settings, plan, topic = copied
    policy = replace(POLICY, drain_bound_ms=800, strategy="producers_first")
    moving = Moving(plan, settings, {topic: PARTITIONS}, (topic_name,), policy)
    end = ends(settings["onprem"], topic)
    moving.context.outcomes["barrier"] = {"ends": encode_offsets(dict(zip(places(topic), end, strict=True)))}
    reader = consumer(settings["onprem"], topic_name, topic, **{"isolation.level": "read_committed"})
    try:
        reader.commit(offsets=[WirePartition(topic, number, 3) for number in range(PARTITIONS)], asynchronous=False)
        assert moving.preflight() == []
        with pytest.raises(Refused, match=f"still reads {topic}-0, {topic}-1"):
            moving.step("drain_consumers", groups.drain_consumers)
        moving.context.outcomes.pop("drain_consumers", None)
        rows = read_all(settings["onprem"], topic, PARTITIONS)
        last = [WirePartition(topic, number, rows[number][-1][0] + 1) for number in range(PARTITIONS)]
        assert all(each.offset < end[each.partition] for each in last)
        reader.commit(offsets=last, asynchronous=False)
        moving.step("drain_consumers", groups.drain_consumers)
    finally:
        reader.close()
    moving.step("stop_consumers", groups.stop_consumers)
    moving.step("translate_offsets", groups.translate_offsets)
    target = moving.context.translated(topic_name).target
    assert [target[place] for place in places(topic)] == ends(settings["cloud"], topic)


def test_a_position_inside_an_open_transaction_is_not_taken_for_none(copied, topic_name):
    settings, plan, topic = copied
    here = settings["onprem"]
    idle = f"{topic_name}-idle"
    for group in (topic_name, idle):
        committed(here, group, topic, 5, 6)
    member = consumer(here, topic_name, topic)
    sending = producer(here, **{"transactional.id": f"{topic_name}-offsets"})
    sending.init_transactions()
    sending.begin_transaction()
    sending.send_offsets_to_transaction([WirePartition(topic, 0, 12)], member.consumer_group_metadata())
    moving = Moving(plan, settings, {topic: PARTITIONS}, (topic_name,))
    try:
        readers = moving.world.answer(FindReaders("source", (topic,)))
        assert isinstance(readers, ObservedReaders)
        assert readers.groups[topic_name] == (topic,)
        assert idle not in readers.groups
        # Kafka before 2.5 tells it of the whole group
        assert TopicPartition(topic, 0) in shown(moving, "source", topic_name).unstable
    finally:
        sending.commit_transaction()
        member.close()
    deadline = time.monotonic() + 180
    while (found := shown(moving, "source", topic_name)).unstable:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert found.offsets[TopicPartition(topic, 0)] == 12


def test_a_share_group_that_has_finished_gets_nothing_again(copied, topic_name):
    """producers_first: brokers store start offsets late, but tell that nothing is left (KIP-1226)."""
    settings, plan, topic = copied
    policy = replace(POLICY, drain_bound_ms=60_000, strategy="producers_first")
    moving = Moving(plan, settings, {topic: PARTITIONS}, (topic_name,), policy)
    end = dict(zip(places(topic), ends(settings["onprem"], topic), strict=True))
    moving.context.outcomes["barrier"] = {"ends": encode_offsets(end)}
    positioned(settings["onprem"], "java share", topic_name, dict.fromkeys(end, 0))
    records = sum(map(len, read_all(settings["onprem"], topic, PARTITIONS).values()))
    read = console_consumer.consume_with_console(
        ",".join(settings["onprem"].bootstrap), topic, topic_name, "share", records
    )
    assert len(read) == records
    isolated(settings["cloud"], topic_name)
    until(lambda: moving.preflight() == [], "the group's settings are known to the broker")
    for step in ("drain_consumers", "stop_consumers", "translate_offsets", "commit_offsets", "landing_test"):
        moving.step(step, STEPS[step].act)
    assert moving.context.outcomes["translate_offsets"]["groups"][topic_name]["again"] == {}
    found = shown(moving, "target", topic_name)
    assert found.kind == "share"
    assert [found.offsets[place] for place in places(topic)] == ends(settings["cloud"], topic)
