"""Faults that are nobody's death: two fleets, clocks that jump, quotas, hanging transactions, rights taken away."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.replicator.faults import Feeding, progress, times, wait_reports
from tests.replicator.real import (
    applied,
    assert_exact_copy,
    plan_for,
    producer,
    put,
    read_all,
    wait_copied,
    wait_progress,
    workers,
)
from tests.replicator.states_scene import create, in_state, produce, report, until, written
from watershed.clusters.admin import Admin
from watershed.clusters.wire.admin_writes import alter_client_quotas
from watershed.clusters.wire.connection import open_connection

pytestmark = pytest.mark.kafka

QUICK = times(session=3)


def feed(settings, topic: str, partitions: int, rate: int) -> Feeding:
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic, partitions, 1)
    sending = producer(settings["onprem"], **{"batch.size": 8_000})

    def send(count: int, start: int) -> None:
        put(sending, topic, count, start=start, size=100)
        sending.flush()

    return Feeding(send, rate)


OTHER_GROUP = """
import watershed.replicator.worker.membership as _m
_join = _m.Membership.__init__
def _elsewhere(self, settings, group, *rest, **more):
    _join(self, settings, group + ".by-mistake", *rest, **more)
_m.Membership.__init__ = _elsewhere
"""


@pytest.mark.soak
def test_two_fleets_for_one_flow_by_mistake(faulty, topic_name, tmp_path):
    """Two groups, each of which gives every slot to its own worker: both copy the same partitions all the time."""
    settings = faulty.settings
    with feed(settings, topic_name, 2, 700) as feeding:
        plan = applied(settings, plan_for(settings, topic_name, topic_name))
        with workers(plan, "cloud", tmp_path, QUICK) as right, workers(plan, "cloud", tmp_path, OTHER_GROUP) as wrong:
            one, other = right(), wrong()
            progress(settings["cloud"], topic_name, range(2), 700)
            time.sleep(8)  # longer than the same trouble may come back before it is loud
            progress(settings["cloud"], topic_name, range(2), 700)
            for worker in (one, other):
                assert "copying" in worker.log.read_text()
            total = feeding.end()
            wait_copied(settings, plan, topic_name, 2)
    assert assert_exact_copy(settings, plan, topic_name, 2) == total


CLOCK = """
import pathlib, time as _t
_shift, _now = pathlib.Path({path!r}), _t.time
_t.time = lambda: _now() + float(_shift.read_text() or 0)
"""


@pytest.mark.soak
def test_the_workers_clock_jumps(faulty, topic_name, tmp_path):
    """Two days ahead and two days back in mid-copy, and a take-over in each: no time is invented, nothing is lost."""
    settings, shift = faulty.settings, tmp_path / "shift"
    shift.write_text("0")
    prelude = times(session=3, settle=2) + CLOCK.format(path=str(shift))
    with feed(settings, topic_name, 2, 700) as feeding:
        plan = applied(settings, plan_for(settings, topic_name, topic_name))
        with workers(plan, "cloud", tmp_path, prelude) as start:
            worker = start()
            for days in (2, -2, 0):
                progress(settings["cloud"], topic_name, range(2), 200)
                shift.write_text(str(days * 86_400))
                progress(settings["cloud"], topic_name, range(2), 200)
                worker.kill()
                worker = start()
            total = feeding.end()
            wait_copied(settings, plan, topic_name, 2)
    assert assert_exact_copy(settings, plan, topic_name, 2) == total


def quota(settings, key: str, bytes_per_s: float | None) -> None:
    """What the cluster lets the workers have; None: everything again."""
    with open_connection(settings) as connection:
        assert alter_client_quotas(connection, {(("client-id", "watershed"),): {key: bytes_per_s}}) == {}


def test_brokers_that_throttle_the_workers(faulty, topic_name, tmp_path):
    """Quotas of the brokers on what the workers fetch and produce: slower, and nothing else."""
    settings = faulty.settings
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 2, 1)
    sending = producer(settings["onprem"], **{"batch.size": 8_000})
    put(sending, topic_name, 8_000, size=200)
    sending.flush()
    plan = applied(settings, plan_for(settings, topic_name, topic_name))
    quota(settings["onprem"], "consumer_byte_rate", 1_500_000.0)
    quota(settings["cloud"], "producer_byte_rate", 500_000.0)
    try:
        with workers(plan, "cloud", tmp_path) as start:
            worker = start()
            wait_copied(settings, plan, topic_name, 2)
            wait_reports(settings["cloud"], plan, lambda told: {each.state for each in told.values()} == {"running"})
            assert "link lost" not in worker.log.read_text()
    finally:
        quota(settings["onprem"], "consumer_byte_rate", None)
        quota(settings["cloud"], "producer_byte_rate", None)
    assert assert_exact_copy(settings, plan, topic_name, 2) == 8_000


def test_a_hanging_transaction_at_the_source(faulty, topic_name, tmp_path):
    """What is behind it waits and is reported as waiting; when it ends, everything arrives."""
    settings = faulty.settings
    with Admin(settings["onprem"]) as admin:
        admin.create_topic(topic_name, 1, 1)
    plan = applied(settings, plan_for(settings, topic_name, topic_name))
    plain = producer(settings["onprem"])
    put(plain, topic_name, 100)
    plain.flush()
    own = {"transactional.id": topic_name, "linger.ms": 0, "transaction.timeout.ms": 600_000}  # ours to end
    hanging = Producer(settings["onprem"].librdkafka(own))
    hanging.init_transactions()
    hanging.begin_transaction()
    put(hanging, topic_name, 10, start=100)
    hanging.flush()
    put(plain, topic_name, 500, start=200)
    plain.flush()
    with workers(plan, "cloud", tmp_path) as start:
        start()
        wait_progress(settings, plan, topic_name, 1, 100)
        (report,) = wait_reports(
            settings["cloud"],
            plan,
            lambda found: any(each.open_records and each.state == "running" for each in found.values()),
        ).values()
        assert (report.state, report.open_records) == ("running", 510)
        assert len(read_all(settings["cloud"], topic_name, 1)[0]) == 100
        hanging.abort_transaction()
        wait_copied(settings, plan, topic_name, 1)
        wait_reports(settings["cloud"], plan, lambda found: found[0].open_records == 0)
    assert assert_exact_copy(settings, plan, topic_name, 1) == 600


def acl(topic: str, operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission
    )


def allow(admin: AdminClient, topic: str) -> None:
    """Takes the topic's rules away: without one, all is allowed."""
    every = AclBindingFilter(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert admin.delete_acls([every])[every].result(60)


@pytest.mark.parametrize(
    ("side", "right"),
    [("onprem", AclOperation.READ), pytest.param("cloud", AclOperation.WRITE, marks=pytest.mark.soak)],
)
def test_a_right_is_taken_away_in_mid_flight(faulty, topic_name, tmp_path, side, right):
    """Its topic stops and says so, the flow's other topic goes on; given back, everything arrives."""
    settings = faulty.settings
    closed, open_ = f"{topic_name}-closed", f"{topic_name}-open"
    plan = plan_for(settings, topic_name, closed, open_)
    admin = AdminClient(settings[side].librdkafka({}))
    with feed(settings, closed, 1, 300) as feeding, feed(settings, open_, 1, 300) as other:
        applied(settings, plan)
        with workers(plan, "cloud", tmp_path) as start:
            start()
            for topic in (closed, open_):
                progress(settings["cloud"], topic, [0], 200)
            # With a first ACL on a topic nobody may do anything that is not allowed.
            rules = [
                acl(closed, AclOperation.ALL, AclPermissionType.ALLOW),
                acl(closed, right, AclPermissionType.DENY),
            ]
            for future in admin.create_acls(rules).values():
                future.result(60)
            try:
                until = time.monotonic() + 180
                while not unauthorised(settings, plan, closed):
                    assert time.monotonic() < until, "nobody said so"
                    time.sleep(0.3)
                progress(settings["cloud"], open_, [0], 300)
                assert not unauthorised(settings, plan, open_)
            finally:
                allow(admin, closed)
            totals = {closed: feeding.end(), open_: other.end()}
            for topic in totals:
                wait_copied(settings, plan, topic, 1)
    for topic, total in totals.items():
        assert assert_exact_copy(settings, plan, topic, 1) == total


def unauthorised(settings, plan, topic: str) -> bool:
    from tests.replicator.status_view import read_statuses

    return any(
        each.state == "unauthorised"
        for each in read_statuses(settings["cloud"])
        if each.flow == plan.flows[0].id and each.topic == topic
    )


@pytest.mark.parametrize(
    ("side", "operation"),
    [pytest.param("onprem", "READ", marks=pytest.mark.soak), ("cloud", "WRITE"), ("onprem", "DESCRIBE")],
)
def test_a_right_that_goes_and_comes_back(faulty, topic_name, tmp_path, side, operation):
    """Its partition says which, others go on, and it comes back by itself when the right does (F31, AC-91, AC-92)."""
    settings = faulty.settings
    guarded = AdminClient(settings[side].librdkafka())
    denial = acl(f"{topic_name}-closed", AclOperation[operation], AclPermissionType.DENY)
    closed, fine = f"{topic_name}-closed", f"{topic_name}-fine"
    create(settings["onprem"], closed, fine)
    plan = applied(settings, written(tmp_path / "rights.yaml", settings, topic_name, [closed, fine]))

    def copied(topic: str, count: int) -> bool:
        return len(read_all(settings["cloud"], topic, 1)[0]) == count

    for topic in (closed, fine):
        produce(settings["onprem"], topic, 0, 20)
    with workers(plan, "cloud", tmp_path, times(settle=3)) as start:
        start()
        for topic in (closed, fine):
            until(lambda topic=topic: copied(topic, 20), f"{topic} is copied")
        if operation == "WRITE":
            guarded.create_acls([denial])[denial].result(60)
            produce(settings["onprem"], closed, 20, 10)
        else:
            produce(settings["onprem"], closed, 20, 10)  # we are anonymous, too
            guarded.create_acls([denial])[denial].result(60)
        produce(settings["onprem"], fine, 20, 10)
        stopped = in_state(settings, plan, closed, "unauthorised")
        assert closed in stopped.error
        if operation == "DESCRIBE":  # a refused Fetch does not say which right was missing, the next inspection does
            until(lambda: "DESCRIBE" in (report(settings, plan, closed).error or ""), "the right is named")
        else:
            assert operation in stopped.error
        assert stopped.remedy
        until(lambda: copied(fine, 30), "the other topic goes on")
        in_state(settings, plan, fine, "running")
        allow(guarded, closed)
        until(lambda: copied(closed, 30), "it came back by itself")
        in_state(settings, plan, closed, "running")
    here, there = (read_all(settings[alias], closed, 1)[0] for alias in ("onprem", "cloud"))
    assert [record for _, record in here] == [record for _, record in there]
