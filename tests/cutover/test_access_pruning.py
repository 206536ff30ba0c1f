"""`topology flow prune`: when nothing may be removed, and what a person is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cutover.world import a_plan
from watershed.cli import flow_decisions
from watershed.cli.flow import flow as flow_commands
from watershed.clusters.flow_records import FlowRecord, FlowState
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.synced_access_records import SyncedAccess, SyncedAcl, SyncedUser
from watershed.cutover.operations import access_pruning
from watershed.cutover.operations.access_pruning import propose_pruning
from watershed.cutover.operations.catalogue import OperationRequest, propose_operation
from watershed.cutover.operations.proposal import OperationRefused, Proposal, carry_out_approved
from watershed.replicator.sync.revoked_access import JudgedAcls, JudgedUsers
from watershed.replicator.sync.sync_kind import SyncClusters
from watershed.topology.inventory import InventoryAcl
from watershed.topology.plan import Plan, PlanFlow, seal_plan
from watershed.topology.sync_settings import NO_SYNC, AccessPruning, AclSync, PruneMode, UserSync

NOW = 1_750_000_000_000
ACL = InventoryAcl("User:ann", "READ", "ALLOW", "TOPIC", "dc.orders", "LITERAL")
OURS = replace(ACL, principal="User:worker")
REVOKED = tuple(SyncedAcl(acl, (replace(acl, name="orders"),), NOW, NOW) for acl in (ACL, OURS))
DELETED = SyncedUser("onprem-to-cloud", "ann", "SCRAM-SHA-512", NOW, NOW, NOW)


def pruned(mode: PruneMode) -> Plan:
    plan = a_plan()
    there, *others = plan.flows
    pruning = AccessPruning(mode)
    sync = replace(NO_SYNC, acls=AclSync("once", prune=pruning), users=UserSync("once", prune=pruning))
    return seal_plan(replace(plan, flows=(replace(there, sync=sync), *others)))


PLAN = pruned("approve")
FLOW = PLAN.flows[0]


def connect(alias: str) -> ConnectionSettings:
    return ConnectionSettings(alias, ("127.0.0.1:1",))


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> dict[str, JudgedAcls | JudgedUsers | FlowState | None]:
    """What clusters say, to be changed by a test: `state` of the flow, None where it was never applied."""
    told: dict[str, JudgedAcls | JudgedUsers | FlowState | None] = {
        "state": "running",
        "acls": JudgedAcls(REVOKED, REVOKED, {OURS: "User:worker is Watershed's own, or one of its roles"}),
        "users": JudgedUsers((DELETED,), (DELETED,)),
    }

    def read(_target: ConnectionSettings, _flow: str) -> SyncedAccess:
        state = told["state"]
        return SyncedAccess(None if state is None else FlowRecord(FLOW, "sha256:0", "shop", state=state))  # type: ignore[arg-type]

    monkeypatch.setattr(access_pruning, "read_synced_access", read)
    monkeypatch.setattr(access_pruning, "read_budget_breaches", lambda _target: {})
    monkeypatch.setattr(access_pruning, "judge_acls_now", lambda *_: told["acls"])
    monkeypatch.setattr(access_pruning, "judge_users_now", lambda *_: told["users"])
    return told


def test_each_right_and_user_is_shown_with_when_it_came_and_since_when_it_is_gone(
    judged: dict[str, JudgedAcls | JudgedUsers | FlowState | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    proposal = propose_operation(PLAN, connect, OperationRequest("prune", flow=str(FLOW.id)))
    assert proposal.lines == (
        "remove at cloud: User:ann READ topic dc.orders (from User:ann READ topic orders), given 2025-06-15 15:06 UTC, "
        "revoked at onprem, seen first 2025-06-15 15:06 UTC",
        "remove at cloud: user ann SCRAM-SHA-512, seen on both sides 2025-06-15 15:06 UTC, deleted at onprem, seen "
        "first 2025-06-15 15:06 UTC",
        "stays: User:worker READ topic dc.orders (from User:worker READ topic orders): User:worker is Watershed's own, "
        "or one of its roles",
    )
    monkeypatch.setattr(access_pruning, "remove_revoked_acls", lambda *_: {})
    monkeypatch.setattr(access_pruning, "remove_revoked_users", lambda *_: {("ann", "SCRAM-SHA-512"): "NOT_CONTROLLER"})
    done = iter(carry_out_approved(proposal, proposal.basis, "eve"))
    assert next(done).startswith("removed: User:ann READ topic dc.orders")
    with pytest.raises(OperationRefused, match="refused to remove ann SCRAM-SHA-512: NOT_CONTROLLER"):
        next(done)
    judged["users"] = JudgedUsers()
    with pytest.raises(OperationRefused, match="not what was shown and approved"):
        carry_out_approved(propose_pruning(PLAN, connect, str(FLOW.id)), proposal.basis, "eve")


@pytest.mark.parametrize(
    ("plan", "changed", "says"),
    [
        (PLAN, {"state": None}, "was never applied"),
        (PLAN, {"state": "paused"}, "is paused: what its source has taken away"),
        (pruned("never"), {}, "Write `prune: approve`"),
        (PLAN, {"acls": JudgedAcls(blind="onprem shows no right at all")}, "shows no right at all"),
        (PLAN, {"users": JudgedUsers(bulk="4 of 5 users are gone")}, "4 of 5 users are gone"),
    ],
)
def test_what_cannot_be_judged_is_not_removed(
    judged: dict[str, JudgedAcls | JudgedUsers | FlowState | None],
    plan: Plan,
    changed: dict[str, JudgedAcls | JudgedUsers | FlowState | None],
    says: str,
) -> None:
    judged |= changed
    with pytest.raises(OperationRefused, match=says):
        propose_pruning(plan, connect, str(FLOW.id))


def test_a_person_may_accept_that_most_is_gone(
    judged: dict[str, JudgedAcls | JudgedUsers | FlowState | None],
) -> None:
    judged["acls"] = JudgedAcls(REVOKED, REVOKED, bulk="2 of 2 rights are gone")
    wanted = OperationRequest("prune", flow=str(FLOW.id))
    with pytest.raises(OperationRefused, match="2 of 2 rights"):
        propose_operation(PLAN, connect, wanted)
    assert propose_operation(PLAN, connect, replace(wanted, accepted=("above-share",))).is_needed


def test_nothing_to_remove_asks_nobody(judged: dict[str, JudgedAcls | JudgedUsers | FlowState | None]) -> None:
    judged |= {"acls": JudgedAcls(), "users": JudgedUsers()}
    proposal = propose_pruning(PLAN, connect, str(FLOW.id))
    assert (proposal.is_needed, proposal.lines) == (False, ("nothing is to be removed at cloud",))


@pytest.mark.parametrize(("is_needed", "args", "done"), [(True, ["--yes"], ["ann"]), (False, [], [])])
def test_the_command_line_shows_it_and_does_it_in_the_name_of_who_asks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_needed: bool, args: list[str], done: list[str]
) -> None:
    actors: list[str] = []

    def propose(_plan: Plan, _connect: object, flow_id: str, *, above_share: bool) -> Proposal:
        assert (flow_id, above_share) == ("a-to-b", False)

        def carry_out(actor: str) -> list[str]:
            actors.append(actor)
            return ["removed: it"]

        return Proposal("remove?", ("what would be removed",), "basis", carry_out, (), is_needed)

    monkeypatch.setattr(flow_decisions, "compile_plan_at", lambda _path: PLAN)
    monkeypatch.setattr(flow_decisions, "build_settings_lookup", lambda _plan: connect)
    monkeypatch.setattr(flow_decisions, "name_actor", lambda: "ann")
    monkeypatch.setattr(access_pruning, "propose_pruning", propose)
    result = CliRunner().invoke(flow_commands, ["prune", "a-to-b", str(tmp_path), *args], catch_exceptions=False)
    assert result.output.splitlines() == ["what would be removed", *(["removed: it"] if done else [])]
    assert actors == done


def test_the_source_is_the_cluster_that_the_flow_was_applied_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []

    def judge(_flow: PlanFlow, sides: SyncClusters, _now_ms: int) -> JudgedAcls:
        asked.append(sides.source.cluster_id)
        return JudgedAcls()

    record = FlowRecord(FLOW, "sha256:0", "shop", source_cluster_id="was-applied")
    monkeypatch.setattr(access_pruning, "read_budget_breaches", lambda _target: {})
    monkeypatch.setattr(access_pruning, "read_synced_access", lambda *_: SyncedAccess(record))
    monkeypatch.setattr(access_pruning, "judge_acls_now", judge)
    monkeypatch.setattr(access_pruning, "judge_users_now", lambda *_: JudgedUsers())
    propose_pruning(PLAN, connect, str(FLOW.id))
    assert asked == ["was-applied"]
