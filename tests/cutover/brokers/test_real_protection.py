"""Brokers with an authorizer: topics of a protected flow refuse applications until the switch, wherever the driver of
the migration dies, and again when the move is taken back."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.cutover.fence_scene import Scene, a_scene, writes
from tests.replicator.guarded import PASSWORD, Guarded, as_user, await_rights, grant, guarded
from tests.replicator.real import workers
from tests.replicator.states_scene import until
from watershed.cli.main import main
from watershed.clusters.admin import Admin
from watershed.clusters.flow_records import read_flows
from watershed.clusters.protection_records import read_protections, write_protection
from watershed.clusters.required_role_acls import RequiredRight, derive_required_rights
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.admin_reads import read_acls
from watershed.clusters.wire.admin_writes import create_acls, delete_acls
from watershed.clusters.wire.connection import open_connection
from watershed.cutover.actions import LiftProtection
from watershed.cutover.driver import RunEvent
from watershed.cutover.live.action_handler import LiveActionHandler
from watershed.cutover.live.application_control import NO_APPLICATIONS
from watershed.cutover.operations.flow_state import give_flow_order
from watershed.replicator.apply import apply_plan
from watershed.replicator.sync.protection import ProtectionKind, inspect_protection, keep_protection
from watershed.replicator.sync.sync_on_apply import find_sync_differences
from watershed.topology import compile_path
from watershed.topology.application_controls import PlanApplication
from watershed.topology.inventory import InventoryAcl
from watershed.topology.migration_waves import WaveFence
from watershed.topology.plan import encode_plan, seal_plan
from watershed.topology.sync_settings import AclSync

__all__ = ["guarded"]  # the fixture
pytestmark = pytest.mark.kafka
PROBE = "User:probe"


def rights_of(settings: ConnectionSettings, topic: str) -> set[InventoryAcl]:
    with open_connection(settings) as inquiry:
        return {acl for acl in read_acls(inquiry) or () if acl.name == topic}


def right(topic: str, who: str = PROBE, permission: str = "ALLOW") -> InventoryAcl:
    return InventoryAcl(who, "WRITE", permission, "TOPIC", topic, "LITERAL")


def refusal(settings: ConnectionSettings, topic: str) -> str:
    """The name of the error with which the first record is refused."""
    errors: list[object] = []
    producer = Producer(settings.librdkafka({"message.timeout.ms": 20_000}))
    producer.produce(topic, b"one", on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(60) == 0
    [error] = errors
    return "" if error is None else str(error.name())  # type: ignore[attr-defined]  # a KafkaError


def protected(guarded: Guarded, topic: str) -> Scene:
    """The application may write on both sides, by rights that a person gave; the flow protects the target."""
    scene = a_scene(guarded.admin, topic, WaveFence(), PlanApplication(principal=PROBE))
    given = tuple(RequiredRight(alias, "TOPIC", topic, "LITERAL", "WRITE", "test") for alias in guarded.admin)
    grant(guarded, "probe", given)
    await_rights(guarded, "probe", given)
    [flow] = scene.plan.flows
    sync = replace(flow.sync, acls=AclSync("continuous", include_write="on_failover"))
    scene.plan = seal_plan(replace(scene.plan, flows=(replace(flow, sync=sync, protect=True),)))
    apply_plan(scene.plan, guarded.admin.__getitem__)
    assert rights_of(guarded.admin["cloud"], topic) == {right(topic), right(topic, permission="DENY")}
    return scene


@pytest.mark.soak
@pytest.mark.parametrize(
    "done", [pytest.param(False, id="before it is lifted"), pytest.param(True, id="before its outcome is journaled")]
)
def test_the_application_writes_from_the_switch_on_though_the_driver_is_killed(
    guarded: Guarded, topic_name: str, tmp_path: Path, done: bool
) -> None:
    """The driver is a process of its own, ended by SIGKILL between intent and outcome; another one goes on."""
    cloud, mine = guarded.admin["cloud"], guarded.settings("probe")
    scene = protected(guarded, topic_name)
    assert refusal(mine["cloud"], topic_name) == "TOPIC_AUTHORIZATION_FAILED"
    late = right(topic_name, "User:late")  # a right to write that comes to the source meanwhile
    with open_connection(guarded.admin["onprem"]) as source:
        assert create_acls(source, [late]) == {}
    apply_plan(scene.plan, guarded.admin.__getitem__)
    assert late not in rights_of(cloud, topic_name)

    (tmp_path / "plan.json").write_text(encode_plan(scene.plan))
    addresses = {alias: each.bootstrap[0] for alias, each in guarded.admin.items()}
    told = json.dumps({"addresses": addresses, "done": done})
    process = subprocess.run(
        [sys.executable, "-c", _DRIVER, str(tmp_path / "plan.json"), told],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert (right(topic_name, permission="DENY") in rights_of(cloud, topic_name)) is not done

    def at(event: RunEvent) -> None:
        if (event.step, event.kind) == ("canary", "begin"):
            writes(mine["cloud"], topic_name)

    scene.at = at
    result = scene.migration().run()  # under the same name: goes on
    assert result.state == "done", result
    assert rights_of(cloud, topic_name) == {right(topic_name), late}
    [flow] = scene.plan.flows
    assert flow.id not in read_protections(cloud)
    assert read_flows(cloud)[flow.id].unprotected == {topic_name}
    assert keep_protection(cloud, flow) == {}  # what a worker does
    assert rights_of(cloud, topic_name) == {right(topic_name), late}


@pytest.mark.soak
def test_a_move_that_is_taken_back_protects_again(guarded: Guarded, topic_name: str) -> None:
    cloud, scene = guarded.admin["cloud"], protected(guarded, topic_name)
    lifted: list[set[InventoryAcl]] = []

    def at(event: RunEvent) -> None:
        if (event.step, event.kind) == ("point_of_no_return", "begin"):
            lifted.append(rights_of(cloud, topic_name))
            writes(guarded.admin["onprem"], topic_name)  # a straggler at the very last look

    scene.at = at
    result = scene.migration().run()
    assert (result.state, result.step) == ("rolled_back", "point_of_no_return"), result
    assert lifted == [{right(topic_name)}]
    assert rights_of(cloud, topic_name) == {right(topic_name), right(topic_name, permission="DENY")}
    assert refusal(guarded.settings("probe")["cloud"], topic_name) == "TOPIC_AUTHORIZATION_FAILED"
    assert read_flows(cloud)[scene.plan.flows[0].id].unprotected == set()


def test_a_stopped_flow_and_one_that_is_protected_no_more_leave_no_denial_of_ours(
    guarded: Guarded, topic_name: str
) -> None:
    """A denial of somebody else stays, and a right for everybody is told."""
    cloud, scene = guarded.admin["cloud"], protected(guarded, topic_name)
    [flow] = scene.plan.flows
    own = right(topic_name, "User:other", "DENY")
    for_all = right(topic_name, "User:*")
    with open_connection(cloud) as target:
        assert create_acls(target, [own, for_all, right(topic_name, "User:other")]) == {}
    keep_protection(cloud, flow)
    rows = [each for each in find_sync_differences(scene.plan, guarded.admin.__getitem__) if each.kind == "protection"]
    assert [each.applied for each in rows] == [False]
    assert f"User:* WRITE topic {topic_name} lets everybody write at cloud" in rows[0].why
    with open_connection(cloud) as target:
        assert delete_acls(target, [for_all]) == {}
    assert "1 denials that protected cloud are gone" in "\n".join(give_flow_order(cloud, flow.id, "stop", "ann"))
    assert "0 denials that protected cloud are gone" in "\n".join(give_flow_order(cloud, flow.id, "stop", "ann"))
    people = {right(topic_name), right(topic_name, "User:other"), own}
    assert rights_of(cloud, topic_name) == people
    keep_protection(cloud, flow)
    assert rights_of(cloud, topic_name) == people
    handler = LiveActionHandler(scene.plan, flow, guarded.admin, NO_APPLICATIONS, time.monotonic)
    for mend in (  # a worker died right behind a denial, while the flow was being stopped
        lambda: handler.answer(LiftProtection(("of-another-wave",))),  # of a failover, which has stopped the flow
        lambda: ProtectionKind().keep_stopped(flow, cloud),
        lambda: apply_plan(scene.plan, guarded.admin.__getitem__),
    ):
        write_protection(cloud, flow.id, [right(topic_name, permission="DENY")])
        with open_connection(cloud) as target:
            assert create_acls(target, [right(topic_name, permission="DENY")]) == {}
        mend()
        assert rights_of(cloud, topic_name) == people
        assert flow.id not in read_protections(cloud)
    list(give_flow_order(cloud, flow.id, "resume", "ann"))
    keep_protection(cloud, flow)
    assert rights_of(cloud, topic_name) == {*people, right(topic_name, permission="DENY")}
    assert inspect_protection(cloud, flow).missing == frozenset()
    open_again = seal_plan(replace(scene.plan, flows=(replace(flow, protect=False),)))
    apply_plan(open_again, guarded.admin.__getitem__)
    assert rights_of(cloud, topic_name) == people


_DRIVER = """
import json, os, signal, sys
from pathlib import Path
from watershed.clusters.settings import ConnectionSettings
from watershed.cutover.actions import LiftProtection
from tests.cutover.fence_scene import POLICY, Scene
from dataclasses import replace
from watershed.topology.plan import decode_plan
plan, told = decode_plan(Path(sys.argv[1]).read_text()), json.loads(sys.argv[2])
settings = {alias: ConnectionSettings(alias, (each,)) for alias, each in told["addresses"].items()}
def died(action, done):
    if isinstance(action, LiftProtection) and done == told["done"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return False
Scene(settings, plan, replace(POLICY, fence=plan.migration.waves[0].fence), died=died).migration().run()
"""


@pytest.mark.soak
def test_from_a_file_by_the_command_line_with_exactly_the_rights_that_are_named(
    guarded: Guarded,
    topic_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A worker keeps the target read-only and finds a revoked right; a person sees both, and removes the right."""
    cloud, onprem = guarded.admin["cloud"], guarded.admin["onprem"]
    for each in guarded.admin.values():
        with Admin(each) as admin:
            admin.create_topic(topic_name, 1, 1)
    reads = replace(right(topic_name, f"User:{topic_name}-ann"), operation="READ")
    stays = replace(reads, operation="DESCRIBE")
    with open_connection(onprem) as source, open_connection(cloud) as target:
        assert create_acls(source, [reads, stays]) == {}
        assert create_acls(target, [right(topic_name)]) == {}
    monkeypatch.setenv("GUARDED_APPLY", f"apply:{PASSWORD}")
    monkeypatch.setenv("GUARDED_WORKER", f"worker:{PASSWORD}")
    path = tmp_path / "t.yaml"
    clusters = "\n".join(
        f"  {alias}: {{bootstrap: ['{each.bootstrap[0]}'], security: {{protocol: SASL_PLAINTEXT, mechanism: PLAIN, "
        "credentials: {env: GUARDED_APPLY}}}"
        for alias, each in guarded.settings("apply").items()
    )
    path.write_text(
        f"apiVersion: topology/v1alpha1\nkind: Topology\nmetadata: {{name: {topic_name}}}\nclusters:\n{clusters}\n"
        f"flows:\n  - source: onprem\n    target: cloud\n    suffix: {topic_name}\n    protect: true\n"
        f"    topics: {{include: [{topic_name}]}}\n"
        "    sync: {acls: {mode: continuous, include_write: on_failover, prune: approve}}\n"
    )
    plan = compile_path(path)
    for user, roles in (("apply", ("apply", "observe")), ("worker", ("worker",))):
        for role in roles:
            needed = derive_required_rights(plan, role)
            grant(guarded, user, needed)
            await_rights(guarded, user, needed)
    [flow] = plan.flows
    main(["plan", str(path)])
    assert f"  + protection topic {topic_name}\n" in capsys.readouterr().out
    assert main(["apply", str(path), "--yes"]) == 0, capsys.readouterr()
    assert right(topic_name, permission="DENY") in rights_of(cloud, topic_name)
    assert reads in rights_of(cloud, topic_name)
    capsys.readouterr()
    often = "from watershed.replicator.sync import sync_kind\nsync_kind.METADATA_INTERVAL_MS = 500\n"
    with workers(as_user(plan, guarded, "worker"), "cloud", tmp_path, often) as start:
        start()

        def status() -> str:
            main(["status", str(path)])
            return capsys.readouterr().out

        until(lambda: f"protected: {topic_name}; denied WRITE by name: User:probe" in status(), "the worker protects")
        late = right(topic_name, f"User:{topic_name}-late")
        with open_connection(cloud) as target:
            assert create_acls(target, [late]) == {}
        until(
            lambda: replace(late, permission="DENY") in rights_of(cloud, topic_name), "who comes later is denied, too"
        )
        with open_connection(onprem) as source:
            assert delete_acls(source, [reads]) == {}
        until(lambda: f"topology flow prune {flow.id} FILE" in status(), "the worker has seen what was revoked")
        assert main(["flow", "prune", str(flow.id), str(path), "--yes"]) == 0, capsys.readouterr()
        assert f"removed: User:{topic_name}-ann READ topic {topic_name}" in capsys.readouterr().out
        assert reads not in rights_of(cloud, topic_name)
        assert stays in rights_of(cloud, topic_name)
        until(lambda: "revoked at onprem" not in status(), "the status forgets it")
    assert main(["journal", "--orders", str(path)]) == 0
    assert f"prune {flow.id}, User:{topic_name}-ann READ topic {topic_name}" in capsys.readouterr().out
    assert main(["flow", "stop", str(flow.id), str(path)]) == 0
    assert "2 denials that protected cloud are gone" in capsys.readouterr().out
