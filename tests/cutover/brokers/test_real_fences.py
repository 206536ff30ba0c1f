"""Fences on real brokers: a producer that does not stop is kept out, or caught and named; what stood there before a
fence stands there behind it, wherever the driver dies."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.cutover.fence_scene import CHECKOUT, Died, Stubborn, a_scene, writes
from tests.replicator.guarded import Guarded, await_rights, grant, guarded, revoke
from tests.replicator.real import applied, plan_for, settings_of
from tests.replicator.states_scene import until
from watershed.clusters import producer_fence
from watershed.clusters.admin import Admin
from watershed.clusters.control_topics import ControlWriter, ensure_control_topics
from watershed.clusters.errors import CannotFence
from watershed.clusters.partition_writers import find_transactional_ids, read_producer_states, read_writes_since
from watershed.clusters.producer_registry import ProducerRecord, register_producer
from watershed.clusters.required_role_acls import RequiredRight, derive_required_rights
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.topic_partition import TopicPartition
from watershed.clusters.wire.admin_reads import read_acls, read_client_quotas
from watershed.clusters.wire.admin_writes import alter_client_quotas, create_acls, delete_acls
from watershed.clusters.wire.connection import open_connection
from watershed.cutover.actions import FindWriters, LowerFence, RaiseFence, ReadFence
from watershed.cutover.driver import RunEvent
from watershed.cutover.fences.journaled_fence import find_standing_fence
from watershed.cutover.observations import ObservedFence, ObservedWriters
from watershed.cutover.withheld_rights_steps import find_standing_rights
from watershed.topology.application_controls import PlanApplication
from watershed.topology.inventory import InventoryAcl
from watershed.topology.migration_waves import WaveFence
from watershed.topology.plan import encode_plan, seal_plan
from watershed.topology.selectors import Selector
from watershed.topology.sync_settings import AclSync, NameFilter, QuotaSync

if TYPE_CHECKING:
    from watershed.lab.clusters import Lab

__all__ = ["guarded"]  # the fixture
pytestmark = pytest.mark.kafka
PROBE = "User:probe"


@pytest.fixture
def plain(kafka_pair: Lab) -> dict[str, ConnectionSettings]:
    return settings_of(kafka_pair)


def rights_of(settings: ConnectionSettings, topic: str) -> set[InventoryAcl]:
    with open_connection(settings) as inquiry:
        return {acl for acl in read_acls(inquiry) or () if acl.name == topic}


def quotas_of(settings: ConnectionSettings, name: str) -> dict[str, dict[str, float]]:
    with open_connection(settings) as inquiry:
        return {str(e): limits for e, limits in read_client_quotas(inquiry).items() if any(n == name for _, n in e)}


def denial(topic: str) -> InventoryAcl:
    return InventoryAcl(PROBE, "WRITE", "DENY", "TOPIC", topic, "LITERAL")


def may_write(guarded: Guarded, *topics: str) -> None:
    given = tuple(
        RequiredRight(alias, "TOPIC", topic, "LITERAL", "WRITE", "test") for alias in guarded.admin for topic in topics
    )
    grant(guarded, "probe", given)
    await_rights(guarded, "probe", given)


# -- the fences alone ---------------------------------------------------------------------------------------------


def test_denials_are_raised_and_lowered_to_exactly_what_stood_there(guarded: Guarded, topic_name: str) -> None:
    here, open_, closed = guarded.admin["onprem"], f"{topic_name}.open", f"{topic_name}.closed"
    with Admin(here) as admin:
        for topic in (open_, closed):
            admin.create_topic(topic, 1, 1)
    may_write(guarded, open_, closed)
    with open_connection(here) as inquiry:
        assert create_acls(inquiry, [denial(closed)]) == {}
    until(lambda: denial(closed) in rights_of(here, closed), "the broker has heard of it")
    before = {topic: rights_of(here, topic) for topic in (open_, closed)}
    found = producer_fence.inspect_acl_fence(here, [open_, closed], [PROBE])
    assert (found.up, found.snapshot["there"]) == (False, [[PROBE, closed]])
    snapshot = json.loads(json.dumps(found.snapshot))  # as the journal keeps it
    with Stubborn(guarded.settings("probe")["onprem"], open_) as writer:
        _until(lambda: writer.acked > 5)
        for _ in range(2):  # as often as one likes
            assert producer_fence.raise_acl_fence(here, snapshot).up
        assert producer_fence.inspect_acl_fence(here, [open_, closed], [PROBE]).up
        _until(lambda: writer.refused > 5)
        at = _ends(here, open_)
        refused = writer.refused
        _until(lambda: writer.refused > refused + 20)
        assert _ends(here, open_) == at
    for _ in range(2):
        producer_fence.lower_acl_fence(here, snapshot)
        assert {topic: rights_of(here, topic) for topic in (open_, closed)} == before
    writes(guarded.settings("probe")["onprem"], open_)


def test_quotas_are_raised_and_lowered_to_exactly_what_stood_there(
    plain: dict[str, ConnectionSettings], topic_name: str
) -> None:
    here = plain["onprem"]
    user, client = f"u-{topic_name}", f"c-{topic_name}"
    both = (("client-id", client), ("user", user))
    with open_connection(here) as inquiry:
        limits = {"producer_byte_rate": 4096.0, "consumer_byte_rate": 8192.0}
        assert (
            alter_client_quotas(inquiry, {both: limits, (("client-id", client),): {"request_percentage": 50.0}}) == {}
        )
    until(lambda: len(quotas_of(here, client)) == 2, "the broker has heard of them")
    before = {name: quotas_of(here, name) for name in (user, client)}
    found = producer_fence.inspect_quota_fence(here, [(user, None), (None, f"{client}-2")], 1)
    snapshot = json.loads(json.dumps(found.snapshot))
    told = {str(each["entity"]): each["before"] for each in snapshot["limits"]}
    assert told == {
        f"[['client-id', '{client}'], ['user', '{user}']]": 4096.0,
        f"[['user', '{user}']]": None,
        f"[['client-id', '{client}-2']]": None,
    }
    for _ in range(2):
        assert producer_fence.raise_quota_fence(here, snapshot).up
    assert quotas_of(here, user) != before[user]
    assert producer_fence.inspect_quota_fence(here, [(user, None), (None, f"{client}-2")], 1).up
    for _ in range(2):
        producer_fence.lower_quota_fence(here, snapshot)
        assert {name: quotas_of(here, name) for name in (user, client)} == before
        assert quotas_of(here, f"{client}-2") == {}
    with pytest.raises(CannotFence, match=rf"a quota for client-id={client}, user={user}.*declare the application's"):
        producer_fence.inspect_quota_fence(here, [(None, client)], 1)


def test_the_role_that_migrates_has_the_rights_that_fences_need(guarded: Guarded, topic_name: str) -> None:
    for fence, application in (
        (WaveFence("acl"), PlanApplication(principal=PROBE)),
        (WaveFence("quota"), PlanApplication(principal=PROBE)),
    ):
        scene = a_scene(guarded.admin, f"{topic_name}.{fence.kind}", fence, application)
        needed = tuple(each for each in derive_required_rights(scene.plan, "migrate") if each.cluster == "onprem")
        may_write(guarded, f"{topic_name}.{fence.kind}")
        grant(guarded, "apply", needed)
        await_rights(guarded, "apply", needed)
        here = guarded.settings("apply")["onprem"]
        if fence.kind == "acl":
            snapshot = producer_fence.inspect_acl_fence(here, [f"{topic_name}.acl"], [PROBE]).snapshot
            assert producer_fence.raise_acl_fence(here, snapshot).up
            assert not producer_fence.lower_acl_fence(here, snapshot).up
        else:
            snapshot = producer_fence.inspect_quota_fence(here, [("probe", None)], 1).snapshot
            assert producer_fence.raise_quota_fence(here, snapshot).up
            assert not producer_fence.lower_quota_fence(here, snapshot).up
        writes(guarded.settings("probe")["onprem"], f"{topic_name}.{fence.kind}")
        place = TopicPartition(f"{topic_name}.{fence.kind}", 0)
        [wrote] = read_writes_since(here, {place: 0})[0]
        assert find_transactional_ids(here, [wrote.producer_id]) == {}
        for right in needed:
            revoke(guarded, "apply", right)


def test_what_cannot_hold_is_refused(plain: dict[str, ConnectionSettings], guarded: Guarded, topic_name: str) -> None:
    with pytest.raises(CannotFence, match="cluster onprem has no authorizer"):
        producer_fence.inspect_acl_fence(plain["onprem"], [topic_name], [PROBE])
    with pytest.raises(CannotFence, match=f"no right at all for {topic_name}"):
        producer_fence.inspect_acl_fence(guarded.admin["onprem"], [topic_name], [PROBE])
    with pytest.raises(CannotFence, match="User:worker is whom Watershed itself is"):
        producer_fence.inspect_acl_fence(guarded.settings("worker")["onprem"], [topic_name], ["User:worker"])


def test_the_log_says_who_wrote(plain: dict[str, ConnectionSettings], topic_name: str) -> None:
    here, place = plain["onprem"], TopicPartition(topic_name, 0)
    with Admin(here) as admin:
        admin.create_topic(topic_name, 1, 1)
    writes(here, topic_name)  # before
    writes(here, topic_name, **{"enable.idempotence": False})
    for _ in range(2):
        writes(here, topic_name, **{"enable.idempotence": True})
    producer = Producer(here.librdkafka({"transactional.id": topic_name}))
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic_name, b"in a transaction")
    producer.commit_transaction()
    with Admin(here) as admin:  # the coordinator answers before the marker is in the log
        until(lambda: admin.offsets([place])[place].end == 6, "the marker is in the log")
    found, upto = read_writes_since(here, {place: 1})
    assert upto == {place: 6}
    told = [(each.producer_id >= 0, each.first, each.last, each.records, each.marker) for each in found]
    assert told == [
        (True, 5, 5, 1, True),
        (True, 4, 4, 1, False),
        (True, 3, 3, 1, False),
        (True, 2, 2, 1, False),
        (False, 1, 1, 1, False),
    ]
    assert all(abs(each.last_ms / 1000 - time.time()) < 3600 for each in found)
    ids = [each.producer_id for each in found]
    assert find_transactional_ids(here, ids) == {ids[0]: topic_name}
    states = {each.producer_id: (each.epoch, each.sequence) for each in read_producer_states(here, [place])}
    assert ids[4] not in states
    assert {each: states[each] for each in ids[:4]} == dict.fromkeys(ids[:4], (0, 0))


def test_a_flow_of_ours_is_told_from_an_application(plain: dict[str, ConnectionSettings], topic_name: str) -> None:
    here, place = plain["onprem"], TopicPartition(topic_name, 0)
    scene = a_scene(plain, topic_name, WaveFence(), PlanApplication())
    writes(here, topic_name, **{"enable.idempotence": True})
    [ours] = read_producer_states(here, [place])
    back = f"cloud-to-onprem-{topic_name}"  # all tests share the clusters' flows
    with Admin(here) as admin:
        ensure_control_topics(admin)
    with ControlWriter(here, "test") as writer:
        register_producer(writer, ProducerRecord(ours.producer_id, back, ("x",), "sequence", topic_name))
    writes(here, topic_name)
    seen = scene.migration().ports.handler.answer(FindWriters("source", (place,), {place: 0}))
    assert isinstance(seen, ObservedWriters)
    assert [(each.flow, each.first) for each in seen.writers] == [("", 1), (back, 0)]
    assert seen.upto == {place: 2}


def test_a_flow_of_another_file_is_found_that_would_carry_the_fence(
    plain: dict[str, ConnectionSettings], topic_name: str
) -> None:
    scene = a_scene(plain, topic_name, WaveFence("quota"), PlanApplication(client_id=topic_name))
    other = plan_for(plain, f"{topic_name}-b", f"{topic_name}-b")
    look = ReadFence("quota", "source", (topic_name,), (CHECKOUT,))
    world = scene.migration().ports.handler

    def carriers(name: str) -> tuple[str, ...]:
        sync = replace(other.flows[0].sync, quotas=QuotaSync("continuous", NameFilter((Selector("literal", name),))))
        applied(plain, seal_plan(replace(other, flows=(replace(other.flows[0], sync=sync),))))
        seen = world.answer(look)
        assert isinstance(seen, ObservedFence), seen
        return seen.carriers

    assert carriers("somebody-else") == ()
    assert carriers(topic_name) == (f"{other.flows[0].id} of {other.topology}",)


# -- whole runs ---------------------------------------------------------------------------------------------------


def test_a_producer_that_ignores_the_stop_is_caught_and_named(
    plain: dict[str, ConnectionSettings], topic_name: str
) -> None:
    """C11: told to stop, it goes on. Nothing else holds it, so everything is taken back, and it has a name."""
    scene = a_scene(plain, topic_name, WaveFence(), PlanApplication())
    rogues: list[Stubborn] = []

    def at(event: RunEvent) -> None:
        if event.step == "standstill" and not rogues:
            rogues.append(Stubborn(plain["onprem"], topic_name, **{"enable.idempotence": True}))

    scene.at = at
    migration = scene.migration()
    try:
        result = migration.run()
    finally:
        for rogue in rogues:
            rogue.__exit__()
    assert (result.state, result.step) == ("rolled_back", "standstill"), result
    [state] = read_producer_states(plain["onprem"], [TopicPartition(topic_name, 0)])
    assert re.search(
        rf"straggler: .*{topic_name}-0 by \+\d+\. Written by producer id {state.producer_id} \(epoch 0\): \d+ records "
        rf"at {topic_name}-0 offset.* last at 20\d\d-\d\d-\d\dT[\d:]+Z\. .*the wave's producers are checkout",
        result.reason,
    ), result.reason
    outcomes = [e.observation for e in migration.journal.chain.entries if e.step == "standstill" and not e.deed]
    [writer] = outcomes[-1]["outcome"]["writers"]
    assert (writer["producer_id"], writer["at"]) == (state.producer_id, f"{topic_name}-0")


def test_an_acl_fence_holds_and_stays_up_after_a_success(guarded: Guarded, topic_name: str) -> None:
    """The same producer behind denials: the source stands still, the wave is done, and the fence still stands. At the
    target nobody has the right to write before the migration gives it."""
    scene = a_scene(guarded.admin, topic_name, WaveFence("acl"), PlanApplication(principal=PROBE))
    flow = scene.plan.flows[0]
    sync = replace(flow.sync, acls=AclSync("continuous", include_write="on_failover"))
    scene.plan = seal_plan(replace(scene.plan, flows=(replace(flow, sync=sync), *scene.plan.flows[1:])))
    given = (RequiredRight("onprem", "TOPIC", topic_name, "LITERAL", "WRITE", "test"),)
    grant(guarded, "probe", given)
    await_rights(guarded, "probe", given)
    mine = guarded.settings("probe")
    assert rights_of(guarded.admin["cloud"], topic_name) == set()
    rogues: list[Stubborn] = []

    def at(event: RunEvent) -> None:
        if event.step == "standstill" and not rogues:
            rogues.append(Stubborn(mine["onprem"], topic_name))
        if event.step == "canary" and event.kind == "begin":
            writes(mine["cloud"], topic_name)

    scene.at = at
    migration = scene.migration()
    try:
        result = migration.run()
        assert result.state == "done", result
        refused = rogues[0].refused
        _until(lambda: rogues[0].refused > refused + 20)
        assert rogues[0].acked == 0
    finally:
        for rogue in rogues:
            rogue.__exit__()
    assert denial(topic_name) in rights_of(guarded.admin["onprem"], topic_name)
    held_back = InventoryAcl(PROBE, "WRITE", "ALLOW", "TOPIC", topic_name, "LITERAL")
    assert rights_of(guarded.admin["cloud"], topic_name) == {held_back}
    assert find_standing_rights(migration.journal.chain.entries) == (asdict(held_back),)
    deed = find_standing_fence(migration.journal.chain.entries)
    assert deed is not None
    producer_fence.lower_acl_fence(guarded.admin["onprem"], deed["snapshot"])
    assert denial(topic_name) not in rights_of(guarded.admin["onprem"], topic_name)


def test_a_fence_that_cannot_be_raised_is_refused_before_anything_is_stopped(
    plain: dict[str, ConnectionSettings], topic_name: str
) -> None:
    scene = a_scene(plain, topic_name, WaveFence(), PlanApplication())
    assert scene.plan.migration is not None
    for fence, application, words in (
        (WaveFence("acl"), PlanApplication(principal=PROBE), "cluster onprem has no authorizer"),
        (WaveFence("acl"), PlanApplication(), "the file tells none for checkout: add `principal"),
        (WaveFence("quota"), PlanApplication(), "the file tells neither for checkout"),
        (WaveFence("quota"), PlanApplication(principal="Group:x"), "quotas know users, and checkout is Group:x"),
        (WaveFence("external"), PlanApplication(), "no hook for it"),
        (WaveFence("external", "switch"), PlanApplication(), "declares no hook switch"),
    ):
        told = replace(scene.plan.migration, applications={CHECKOUT: application})
        changed = replace(scene, plan=replace(scene.plan, migration=told), policy=replace(scene.policy, fence=fence))
        migration = changed.migration(run_id=None)
        result = migration.run()
        assert (result.state, result.step) == ("refused", "preflight"), result
        assert words in result.reason
        assert not [entry for entry in migration.journal.chain.entries if entry.deed]


# -- the driver dies ------------------------------------------------------------------------------------------------

# At `raised` and `to lower` the dead driver leaves a fence that stands; at the two others it leaves none.
POINTS = pytest.mark.parametrize(
    ("deed", "done"),
    [
        pytest.param(RaiseFence, False, id="intent", marks=pytest.mark.soak),
        pytest.param(RaiseFence, True, id="raised"),
        pytest.param(LowerFence, False, id="to lower"),
        pytest.param(LowerFence, True, id="lowered", marks=pytest.mark.soak),
    ],
)


@POINTS
def test_a_quota_fence_survives_the_death_of_its_driver(
    plain: dict[str, ConnectionSettings], topic_name: str, deed: type, done: bool
) -> None:
    here = plain["onprem"]
    entity = (("client-id", topic_name),)
    with open_connection(here) as inquiry:
        assert alter_client_quotas(inquiry, {entity: {"producer_byte_rate": 7e6, "consumer_byte_rate": 5e6}}) == {}
    until(lambda: quotas_of(here, topic_name), "the broker has heard of them")
    before = quotas_of(here, topic_name)
    scene = a_scene(plain, topic_name, WaveFence("quota"), PlanApplication(client_id=topic_name))
    scene.died = lambda action, after: isinstance(action, deed) and after == done
    scene.at = lambda event: writes(here, topic_name) if (event.step, event.kind) == ("barrier", "begin") else None
    with pytest.raises(Died):
        scene.migration().run()
    scene.died = lambda _action, _after: False
    result = scene.migration().run()  # under the same name: goes on
    assert (result.state, result.step) == ("rolled_back", "barrier"), result
    assert quotas_of(here, topic_name) == before


@POINTS
def test_an_acl_fence_survives_the_kill_of_its_driver(
    guarded: Guarded, topic_name: str, tmp_path: Path, deed: type, done: bool
) -> None:
    """A process of its own, ended by SIGKILL in the middle; another one takes everything back."""
    here = guarded.admin["onprem"]
    scene = a_scene(guarded.admin, topic_name, WaveFence("acl"), PlanApplication(principal=PROBE))
    may_write(guarded, topic_name)
    with Admin(here) as admin:  # a denial that is not ours
        admin.create_topic(f"{topic_name}.other", 1, 1)
    with open_connection(here) as inquiry:
        create_acls(inquiry, [denial(f"{topic_name}.other")])
    until(lambda: rights_of(here, f"{topic_name}.other"), "the broker has heard of it")
    before = rights_of(here, topic_name)
    (tmp_path / "plan.json").write_text(encode_plan(scene.plan))
    addresses = {alias: each.bootstrap[0] for alias, each in guarded.admin.items()}
    told = {"addresses": addresses, "deed": deed.__name__, "done": done, "topic": topic_name}
    process = subprocess.run(
        [sys.executable, "-c", _DRIVER, str(tmp_path / "plan.json"), json.dumps(told)],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    stands = denial(topic_name) in rights_of(here, topic_name)
    assert stands == ((deed, done) in [(RaiseFence, True), (LowerFence, False)])
    scene.at = lambda event: writes(here, topic_name) if (event.step, event.kind) == ("barrier", "begin") else None
    result = scene.migration().run()
    assert (result.state, result.step) == ("rolled_back", "barrier"), result
    assert rights_of(here, topic_name) == before
    assert denial(f"{topic_name}.other") in rights_of(here, f"{topic_name}.other")
    with open_connection(here) as inquiry:
        delete_acls(inquiry, [denial(f"{topic_name}.other")])


_DRIVER = """
import json, os, signal, sys
from pathlib import Path
from watershed.clusters.settings import ConnectionSettings
from watershed.cutover import actions
from tests.cutover.fence_scene import POLICY, Scene, writes
from dataclasses import replace
from watershed.topology.plan import decode_plan
plan, told = decode_plan(Path(sys.argv[1]).read_text()), json.loads(sys.argv[2])
settings = {alias: ConnectionSettings(alias, (each,)) for alias, each in told["addresses"].items()}
deed = getattr(actions, told["deed"])
def died(action, done):
    if isinstance(action, deed) and done == told["done"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return False
def at(event):
    if (event.step, event.kind) == ("barrier", "begin"):
        writes(settings["onprem"], told["topic"])
Scene(settings, plan, replace(POLICY, fence=plan.migration.waves[0].fence), at, died).migration().run()
"""


def _ends(settings: ConnectionSettings, topic: str) -> int:
    with Admin(settings) as admin:
        place = TopicPartition(topic, 0)
        return admin.offsets([place], "read_uncommitted")[place].end


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
