"""Groups between real brokers: the next record is the same on both sides, and nobody's position is ever spoilt."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as WirePartition
from confluent_kafka.admin import AdminClient

from tests.replicator.faults import times
from tests.replicator.position_order import check_order_of_positions
from tests.replicator.real import applied, plan_for, settings_of, wait_copied, wait_decided, workers
from watershed.cli.offsets import offsets
from watershed.clusters.admin import Admin
from watershed.clusters.control_records import read_control_log
from watershed.clusters.control_topics import FLOWS_TOPIC, ControlWriter
from watershed.clusters.group_offsets import CommittedPosition, GroupOffsets
from watershed.clusters.sync_reports import SyncReport, read_sync_reports
from watershed.clusters.topic_partition import TopicPartition
from watershed.replicator.sync.group_control_records import GroupResetDecision, journal_group_reset
from watershed.replicator.sync.groups import GroupKind
from watershed.replicator.sync.position_transaction import PositionTransaction
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.replicator.sync.sync_on_apply import find_sync_differences
from watershed.topology import compile_path as plan_of
from watershed.topology.naming import Naming
from watershed.topology.plan import Plan
from watershed.topology.selectors import Selector
from watershed.topology.sync_settings import GroupSync, NameFilter, SyncSettings

pytestmark = pytest.mark.kafka


def groups_of(*names: str, **more) -> SyncSettings:
    return SyncSettings(
        groups=GroupSync("continuous", NameFilter(tuple(Selector("literal", each) for each in names)), 500, **more)
    )


def consumer_of(settings, group: str, topic: str, protocol: str = "classic") -> Consumer:
    consumer = Consumer(
        settings.librdkafka(
            {
                "group.id": group,
                "group.protocol": protocol,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
    )
    consumer.subscribe([topic])
    return consumer


@contextmanager
def member(settings, group: str, topic: str) -> Iterator[Consumer]:
    """A live member that was given its partitions."""
    consumer = consumer_of(settings, group, topic)
    try:
        deadline = time.monotonic() + 180
        while not consumer.assignment():
            consumer.poll(0.1)
            assert time.monotonic() < deadline, "no partitions were given"
        yield consumer
    finally:
        consumer.close()


def read(settings, group: str, topic: str, count: int, protocol: str = "classic") -> list[bytes]:
    """What the group reads next, committed: that many values, or fewer where there are no more."""
    values: list[bytes] = []
    consumer = consumer_of(settings, group, topic, protocol)
    try:
        deadline = time.monotonic() + 180
        while len(values) < count:
            assert time.monotonic() < deadline, "neither a record nor the log's end"
            message = consumer.poll(0.2)
            if message is not None and message.error() is not None:
                break  # the log's end
            if message is not None:
                values.append(message.value() or b"")
        if values:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return values


def transactions(settings, topic: str, count: int, start: int = 0, aborted: int = 3) -> None:
    """Records n one transaction each, every `aborted`th followed by one that is given up: offsets full of holes."""
    with_id = Producer(settings.librdkafka({"transactional.id": f"{topic}-{start}", "linger.ms": 0}))
    with_id.init_transactions()
    for number in range(start, start + count):
        with_id.begin_transaction()
        with_id.produce(topic, b"%d" % number, partition=0)
        with_id.commit_transaction()
        if number % aborted == 0:
            with_id.begin_transaction()
            with_id.produce(topic, b"never", partition=0)
            with_id.flush()
            with_id.abort_transaction()
    wait_decided(settings, topic)


def reported(settings, plan: Plan, group: str, until: Callable[[SyncReport], bool]) -> SyncReport:
    flow, deadline = plan.flows[0], time.monotonic() + 180
    last = None
    while time.monotonic() < deadline:
        for report in read_sync_reports(settings[flow.target]):
            if (report.flow, report.kind, report.name) == (flow.id, "groups", group):
                last = report
                if until(report):
                    return report
        time.sleep(0.4)
    raise AssertionError(f"never so: {last}")


def kept(settings, plan: Plan) -> dict[str, SyncReport]:
    """One round of the keeper, done here."""
    flow = plan.flows[0]
    sides = SyncClusters(settings[flow.source], settings[flow.target])
    return {each.name: each for each in GroupKind().keep(flow, sides)}


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.soak)])
def test_a_lagging_group_goes_on_with_the_very_next_record(own_pair, topic_name, tmp_path, protocol):
    """AC-05, AC-26: a transactional topic with aborts; the worker's keeper writes, the group continues there."""
    settings = settings_of(own_pair)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 1)
    transactions(settings["onprem"], topic_name, 60)
    assert len(read(settings["onprem"], topic_name, topic_name, 25, protocol)) == 25
    plan = applied(settings, plan_for(settings, topic_name, topic_name, sync=groups_of(topic_name)))
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_copied(settings, plan, topic_name, 1)
        told = reported(settings, plan, topic_name, lambda report: report.state == "equal")
    [partition] = told.detail["partitions"]
    assert (partition["at_target"], partition["rereads"], partition["skips"]) == (25, 0, 0)
    assert partition["committed"] > 25  # markers and aborted records take offsets at the source
    assert told.detail["type"] == protocol
    assert read(settings["cloud"], topic_name, topic_name, 100, protocol) == [b"%d" % n for n in range(25, 60)]


@pytest.mark.soak
def test_a_topic_added_later_and_a_worker_anew_change_nothing_for_a_group(own_pair, topic_name, tmp_path):
    """AC-12, AC-16: the second topic is made, and read by the same group, while no worker runs."""
    settings, later = settings_of(own_pair), f"{topic_name}-later"
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 1)
    transactions(settings["onprem"], topic_name, 10)
    assert len(read(settings["onprem"], topic_name, topic_name, 4)) == 4
    plan = applied(settings, plan_for(settings, topic_name, topic_name, later, sync=groups_of(topic_name)))
    with workers(plan, "cloud", tmp_path, times(session=3)) as start:
        worker = start()
        wait_copied(settings, plan, topic_name, 1)
        reported(settings, plan, topic_name, lambda report: report.state == "equal")
        worker.kill()
        with Admin(settings["onprem"]) as admin:
            admin.create_topic(later, 1)
        transactions(settings["onprem"], later, 10)
        assert len(read(settings["onprem"], topic_name, later, 6)) == 6
        assert len(read(settings["onprem"], topic_name, topic_name, 3)) == 3
        start()
        told = reported(
            settings, plan, topic_name, lambda each: each.state == "equal" and len(each.detail["partitions"]) == 2
        )
    found = {part["topic"]: (part["at_target"], part["rereads"], part["skips"]) for part in told.detail["partitions"]}
    assert found == {topic_name: (7, 0, 0), later: (6, 0, 0)}


@pytest.fixture(scope="module")
def copied(own_pair, tmp_path_factory):
    """A topic with holes that was copied once: (settings, plan); no worker runs any more."""
    settings, name = settings_of(own_pair), f"groups-{uuid.uuid4().hex[:8]}"
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(name, 1)
    transactions(settings["onprem"], name, 40)
    plan = applied(settings, plan_for(settings, name, name))
    with workers(plan, "cloud", tmp_path_factory.mktemp("copied")) as start:
        start()
        wait_copied(settings, plan, name, 1)
    return settings, plan, name


def asked(plan: Plan, *names: str, **more) -> Plan:
    return replace(plan, flows=(replace(plan.flows[0], sync=groups_of(*names, **more)),))


def commit(settings, group: str, topic: str, offset: int) -> None:
    """As an application does that is stopped again: no mark."""
    with Admin(settings) as admin:
        admin.commit_offsets(group, {TopicPartition(topic, 0): offset})


def forget(settings, group: str) -> None:
    client = AdminClient(settings.librdkafka())  # it has to live until the answer is there
    client.delete_consumer_groups([group])[group].result(60)


def at(settings, group: str, topic: str) -> int | None:
    with GroupOffsets(settings) as groups:
        found = groups.held([group])[group].positions.get(TopicPartition(topic, 0))
        return None if found is None else found.offset


def test_a_group_that_is_alive_or_was_moved_there_is_left_alone(copied, topic_name):
    """AC-90: also when the live group is empty for a moment, because what it committed there has no mark of ours."""
    settings, plan, topic = copied
    plan = asked(plan, topic_name)
    commit(settings["onprem"], topic_name, topic, 0)
    assert kept(settings, plan)[topic_name].state == "carried"
    commit(settings["onprem"], topic_name, topic, 4)  # behind the first record, its marker, and two aborted offsets
    with member(settings["cloud"], topic_name, topic) as consumer:
        told = kept(settings, plan)[topic_name]
        assert told.state == "different"
        assert "alive at cloud" in told.why
        consumer.commit(offsets=[WirePartition(topic, 0, 30)], asynchronous=False)
    told = kept(settings, plan)[topic_name]  # empty now
    assert (told.state, at(settings["cloud"], topic_name, topic)) == ("different", 30)
    assert "somebody else set this position at cloud" in told.why
    [partition] = told.detail["partitions"]
    assert (partition["translated"], partition["rereads"], partition["skips"]) == (1, 0, 29)


def test_a_group_is_called_otherwise_there_and_never_runs_ahead_of_the_copy(copied, topic_name):
    settings, plan, topic = copied
    there = f"{topic_name}-there"
    plan = asked(plan, topic_name, rename=((topic_name, there),))
    transactions(settings["onprem"], topic, 1, start=40)  # is not copied: no worker runs
    with Admin(settings["onprem"]) as admin:
        end = admin.offsets([TopicPartition(topic, 0)])[TopicPartition(topic, 0)].end
    commit(settings["onprem"], topic_name, topic, end)
    told = kept(settings, plan)[topic_name]
    assert told.state == "waiting"
    assert f"committed {end}, copied through" in told.why
    assert at(settings["cloud"], there, topic) == 40  # behind everything that is copied
    assert at(settings["cloud"], topic_name, topic) is None


def test_going_back_needs_a_journaled_order_which_is_obeyed_once(copied, topic_name):
    settings, plan, topic = copied
    plan = asked(plan, topic_name)
    place = TopicPartition(topic, 0)
    flow = plan.flows[0]

    def order(answers: int) -> GroupResetDecision:
        with ControlWriter(settings["cloud"]) as writer:
            given = GroupResetDecision(flow.id, topic_name, {place: answers}, "the test")
            journal_group_reset(writer, given, plan.topology)
        return given

    commit(settings["onprem"], topic_name, topic, 20)
    first = kept(settings, plan)[topic_name].detail["partitions"][0]["at_target"]
    commit(settings["onprem"], topic_name, topic, 0)
    told = kept(settings, plan)[topic_name]
    assert told.state == "different"
    assert "reset-group" in told.why
    given = order(first)
    assert kept(settings, plan)[topic_name].state == "carried"
    assert at(settings["cloud"], topic_name, topic) == 0
    commit(settings["cloud"], topic_name, topic, first)  # somebody moves it again to where the order was for
    assert kept(settings, plan)[topic_name].state == "different"
    outgrown = order(9_999)
    assert kept(settings, plan)[topic_name].state == "different"
    assert at(settings["cloud"], topic_name, topic) == first
    lines = [record.value or {} for record in read_control_log(settings["cloud"], FLOWS_TOPIC)]
    told_of = {each["id"]: each.get("outcome") for each in lines if each.get("record") == "order-obeyed"}
    assert told_of[given.id] == {str(place): f"set from {first} to 0"}
    assert told_of[outgrown.id] == {str(place): f"not obeyed: the target stands at {first}"}


def test_a_share_groups_start_is_carried_over(copied, topic_name):
    """KIP-932: everything below the start offset is done with; brokers tell no more than that."""
    settings, plan, topic = copied
    plan = asked(plan, topic_name)
    place = TopicPartition(topic, 0)
    with GroupOffsets(settings["onprem"]) as groups:
        assert groups.alter_share(topic_name, {place: 4}) == {}
    told = kept(settings, plan)[topic_name]
    assert (told.state, told.detail["type"]) == ("carried", "share")
    assert "out of order" in told.detail["known"]
    with GroupOffsets(settings["onprem"]) as groups:
        groups.alter_share(topic_name, {place: 8})
    assert kept(settings, plan)[topic_name].state == "carried"
    with GroupOffsets(settings["cloud"]) as groups:
        moved = groups.read_share_offsets([topic_name])[topic_name].positions[place].offset
        assert moved > 1
        groups.alter_share(topic_name, {place: 30})  # somebody else
    assert kept(settings, plan)[topic_name].state == "different"


def test_streams_and_connect_are_refused_by_name(copied, topic_name):
    settings, plan, topic = copied
    plan = asked(plan, topic_name)
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(f"{topic_name}-count-changelog", 1)
    commit(settings["onprem"], topic_name, topic, 3)
    told = kept(settings, plan)[topic_name]
    assert told.state == "refused"
    assert "Kafka Streams" in told.why
    assert at(settings["cloud"], topic_name, topic) is None


@pytest.mark.soak
def test_a_group_moves_there_and_back_between_two_flows(own_pair, topic_name, tmp_path):
    """Active-active with prefixes: the group reads its region's own topic and the copy of the other's. It moves to the
    cloud and home again; each record is read exactly once, and neither flow spoils what the other side leads."""
    settings = settings_of(own_pair)
    plans = {
        way: plan_for(
            settings, f"{topic_name}-{way[0]}", topic_name, routes=(way,), sync=groups_of(topic_name),
            naming=Naming("prefix", before=f"{way[0]}."),
        )
        for way in (("onprem", "cloud"), ("cloud", "onprem"))
    }  # fmt: skip
    there, home = plans.values()
    topics = {"onprem": (topic_name, f"cloud.{topic_name}"), "cloud": (f"onprem.{topic_name}", topic_name)}

    def born(side: str, numbers: range) -> None:
        transactions(settings[side], topic_name, len(numbers), start=numbers.start)

    def wait() -> None:
        for plan in plans.values():
            wait_copied(settings, plan, topic_name, 1)

    def read_some(side: str, each: int) -> list[bytes]:
        return [value for topic in topics[side] for value in read(settings[side], topic_name, topic, each)]

    for alias in settings:
        with Admin(settings[alias]) as admin:
            admin.create_topic(topic_name, 1)
    born("onprem", range(20))
    born("cloud", range(100, 120))
    for plan in plans.values():
        applied(settings, plan)
    with workers(there, "cloud", tmp_path) as start, workers(home, "onprem", tmp_path) as start_home:
        start(), start_home()
        wait()
    seen = read_some("onprem", 8)
    assert {name: each.state for name, each in kept(settings, there).items()} == {topic_name: "carried"}
    assert kept(settings, home)[topic_name].state == "equal"  # a copy: not carried back
    seen += read_some("cloud", 6)
    told = kept(settings, there)[topic_name]
    assert told.state == "different"  # moved at the cloud by its application
    assert kept(settings, home)[topic_name].state == "carried"
    assert kept(settings, there)[topic_name].state == "equal"
    seen += read_some("onprem", 100)
    assert kept(settings, there)[topic_name].state == "carried"
    assert kept(settings, home)[topic_name].state == "equal"
    assert sorted(seen) == sorted(b"%d" % n for n in [*range(20), *range(100, 120)])
    assert read_some("cloud", 1) == []


def test_the_command_line_shows_carries_and_orders(copied, topic_name, tmp_path):
    """`topology offsets groups`, `sync` and `reset-group`, and what `plan` shows of groups."""
    settings, plan, topic = copied
    clusters = "\n".join(f"  {alias}: {{bootstrap: ['{each.bootstrap[0]}']}}" for alias, each in settings.items())
    path = tmp_path / "groups.yaml"
    path.write_text(
        f"apiVersion: topology/v1alpha1\nkind: Topology\nmetadata: {{name: {plan.topology}, owner: us}}\n"
        f"clusters:\n{clusters}\nflows:\n  - source: onprem\n    target: cloud\n    suffix: {topic}\n"
        f"    topics: {{include: [{topic}]}}\n    sync: {{groups: {{mode: once, include: [{topic_name}]}}}}\n"
    )

    def run(command: str, *more: str, code: int = 0) -> str:
        arguments = ["offsets", command, str(path), "--flow", plan.flows[0].id, "--group", topic_name, *more]
        done = CliRunner().invoke(offsets, arguments[1:], standalone_mode=False)
        assert done.exception is None, done.exception
        assert done.return_value == code, done.output
        return done.output

    def numbers() -> tuple[str, int, int | None, int | None, int | None]:
        [group] = json.loads(run("groups", "--format", "json"))["groups"]
        [row] = group["partitions"]
        return row["state"], row["translated"], row["at_target"], row["rereads"], row["skips"]

    commit(settings["onprem"], topic_name, topic, 20)
    state, wanted, *there = numbers()
    assert (state, there) == ("waiting", [None, None, None])
    [told] = [each for each in find_sync_differences(plan_of(path), settings.__getitem__) if each.kind == "group"]
    assert (told.name, told.field, told.live, told.wanted) == (topic_name, f"{topic}-0", None, str(wanted))
    assert f"{topic_name} (classic): carried; Empty at onprem" in run("sync")
    lines = [record.value or {} for record in read_control_log(settings["cloud"], FLOWS_TOPIC)]
    assert [each["kind"] for each in lines if each.get("groups") == [topic_name]] == ["sync"]  # with who ordered it
    assert numbers() == ("equal", wanted, wanted, 0, 0)
    commit(settings["onprem"], topic_name, topic, 0)
    assert "went back at the source" in run("sync", code=1)
    assert numbers() == ("different", 0, wanted, 0, wanted)
    assert f"{wanted} -> 0" in run("reset-group", "--yes")
    run("sync")
    assert numbers() == ("equal", 0, 0, 0, 0)
    assert "nothing to order" in run("reset-group", "--yes", code=1)
    with pytest.raises(AssertionError, match="no such group"):
        run("sync", "--group", f"{topic_name}-none")


def test_a_round_that_stands_still_sets_no_group_back(copied, topic_name, monkeypatch):
    """Decision 0092: a migration commits before the round looks again, or after it, and the round goes on later."""
    settings, plan, topic = copied
    check_order_of_positions(settings["cloud"], f"{topic_name}-order", topic)
    plan = asked(plan, topic_name)
    commit(settings["onprem"], topic_name, topic, 4)
    assert kept(settings, plan)[topic_name].state == "carried"
    commit(settings["onprem"], topic_name, topic, 20)
    append, end, migrated = PositionTransaction.append, PositionTransaction.end, iter((30, 33))

    def migrate() -> None:
        with GroupOffsets(settings["cloud"]) as groups:
            assert groups.commit(topic_name, {TopicPartition(topic, 0): CommittedPosition(next(migrated))}) == {}

    def append_late(of: PositionTransaction, *what):
        done = append(of, *what)
        migrate()
        return done

    def end_late(of: PositionTransaction, **how):
        migrate()
        end(of, **how)

    with monkeypatch.context() as hooked:
        hooked.setattr(PositionTransaction, "append", append_late)
        told = kept(settings, plan)[topic_name]
    assert (told.state, at(settings["cloud"], topic_name, topic)) == ("waiting", 30)
    assert f"group {topic_name} moved at cloud meanwhile" in told.why
    forget(settings["cloud"], topic_name)
    with monkeypatch.context() as hooked:
        hooked.setattr(PositionTransaction, "end", end_late)
        kept(settings, plan)
    assert at(settings["cloud"], topic_name, topic) == 33
    assert kept(settings, plan)[topic_name].state == "different"  # nobody's but the migration's
