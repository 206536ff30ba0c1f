"""Which clusters a running worker takes over from the applied plan, and where it never logs in."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from watershed.clusters.allowed_references import ALLOW_BROKERS
from watershed.clusters.errors import ClusterError, SecretMissing
from watershed.clusters.fleet import FleetRecord
from watershed.clusters.settings import ConnectionSettings, resolve_connection_settings
from watershed.replicator.apply_fleets import build_fleet_record, find_fleet_changes
from watershed.replicator.worker import applied_clusters
from watershed.replicator.worker.applied_clusters import AppliedClusters, list_login_hosts
from watershed.topology.plan import Plan, PlanCluster, PlanFlow, PlanRegistry, PlanSecurity, seal_plan
from watershed.topology.secret_ref import SecretRef
from watershed.topology.selectors import Selector, TopicSelection

CREDENTIALS = SecretRef("env", "WATERSHED_SECRET_A")
LOGIN = PlanSecurity("SASL_SSL", "SCRAM-SHA-512", CREDENTIALS)
OPEN = PlanCluster("a", ("a.example:9092",))
CLOSED = PlanCluster("a", ("a.example:9092",), security=LOGIN)
TARGET = PlanCluster("b", ("b.example:9092",))


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATERSHED_SECRET_A", "user:password")


def record(*clusters: PlanCluster, plan_hash: str = "sha256:new", superseded: tuple[str, ...] = ()) -> FleetRecord:
    known = {each.alias: each for each in (*clusters, TARGET)}
    return FleetRecord("shop", "b", "running", plan_hash, clusters=known, superseded=superseded)


def started_with(*clusters: PlanCluster, plan_hash: str = "sha256:old") -> AppliedClusters:
    known = {each.alias: each for each in (*clusters, TARGET)}

    def own(alias: str) -> ConnectionSettings:
        return resolve_connection_settings(known[alias])

    return AppliedClusters(own, plan_hash)


def moved(cluster: PlanCluster, *hosts: str) -> PlanCluster:
    return replace(cluster, bootstrap=hosts)


def test_a_cluster_that_the_worker_does_not_know_is_taken_over() -> None:
    clusters = started_with()
    with pytest.raises(ClusterError, match="run `topology apply`"):
        clusters.connect("a")
    assert clusters.follow(record(OPEN)) == {"a"}
    assert clusters.connect("a").bootstrap == ("a.example:9092",)
    assert clusters.follow(record(OPEN)) == set()


def test_an_address_that_changes_while_the_worker_runs_is_taken_over() -> None:
    clusters = started_with(OPEN)
    assert clusters.follow(record(OPEN)) == set()
    assert clusters.follow(record(moved(OPEN, "c.example:1"))) == {"a"}
    assert clusters.connect("a").bootstrap == ("c.example:1",)


def test_a_worker_that_reaches_a_cluster_in_a_way_of_its_own_goes_on_so() -> None:
    """The file was applied from elsewhere, where the cluster has another address."""
    clusters = started_with(moved(OPEN, "inside.example:9092"))
    assert clusters.follow(record(OPEN)) == set()
    assert clusters.connect("a").bootstrap == ("inside.example:9092",)


def test_a_worker_that_is_started_with_an_earlier_plan_takes_the_newer_one() -> None:
    clusters = started_with(moved(OPEN, "before.example:9092"), plan_hash="sha256:old")
    assert clusters.follow(record(OPEN, superseded=("sha256:old",))) == {"a"}
    assert clusters.connect("a").bootstrap == ("a.example:9092",)


def test_records_of_earlier_versions_change_nothing() -> None:
    clusters = started_with(OPEN)
    assert clusters.follow(None) == set()
    assert clusters.follow(FleetRecord("shop", "b", "running", "sha256:0")) == set()
    assert clusters.connect("a").bootstrap == ("a.example:9092",)


def test_credentials_go_to_no_host_that_only_a_control_topic_names(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clusters = started_with(CLOSED)
    clusters.follow(record(CLOSED))
    evil = record(moved(CLOSED, "a.example:9092", "evil.example:9092"))
    assert clusters.follow(evil) == set()
    assert clusters.follow(evil) == set()
    assert clusters.connect("a").bootstrap == ("a.example:9092",)
    assert [each.message for each in caplog.records] == ["applied cluster refused"]
    assert "evil.example" in str(caplog.records[0].reason)  # type: ignore[attr-defined]
    monkeypatch.setenv(ALLOW_BROKERS, "*.example")
    assert clusters.follow(evil) == {"a"}


def test_a_known_host_is_not_given_other_secrets() -> None:
    other = replace(CLOSED, security=replace(LOGIN, credentials=SecretRef("env", "WATERSHED_SECRET_B")))
    clusters = started_with(CLOSED)
    clusters.follow(record(CLOSED))
    assert clusters.follow(record(other)) == set()
    assert clusters.follow(record(moved(CLOSED, "a.example:9093"))) == {"a"}  # the same host with the same secrets


@pytest.mark.parametrize(
    ("own", "applied", "why"),
    [
        (replace(OPEN, security=PlanSecurity("SSL")), OPEN, "PLAINTEXT instead of SSL"),
        (CLOSED, replace(CLOSED, security=replace(LOGIN, protocol="SASL_PLAINTEXT")), "SASL_PLAINTEXT instead of"),
        (
            replace(OPEN, security=PlanSecurity("SSL", ca=SecretRef("file", "/ca.pem"))),
            replace(OPEN, security=PlanSecurity("SSL")),
            "no CA of its own",
        ),
        (replace(OPEN, cluster_id="ours"), OPEN, "cluster id unknown instead of ours"),
        (replace(OPEN, cluster_id="ours"), replace(OPEN, cluster_id="theirs"), "cluster id theirs instead of ours"),
    ],
)
def test_a_control_topic_takes_no_protection_away(
    own: PlanCluster,
    applied: PlanCluster,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(ALLOW_BROKERS, "*")
    monkeypatch.setattr(applied_clusters, "resolve_connection_settings", lambda cluster: cluster)
    settings = SimpleNamespace(origin=SimpleNamespace(cluster=own))
    clusters = AppliedClusters(lambda _alias: settings)  # type: ignore[arg-type, return-value]
    clusters.follow(record(own))
    assert clusters.follow(record(applied)) == set()
    assert clusters.connect("a") is settings
    assert why in str(caplog.records[-1].reason)  # type: ignore[attr-defined]


def test_an_unknown_cluster_with_a_login_says_what_lets_it() -> None:
    clusters = started_with()
    clusters.follow(record(CLOSED))
    with pytest.raises(SecretMissing, match=f"{ALLOW_BROKERS}=a.example"):
        clusters.connect("a")


def test_this_machine_may_always_be_logged_in_at(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = started_with()
    assert clusters.follow(record(moved(CLOSED, "127.0.0.1:9092", "localhost:1"))) == {"a"}


def test_a_registry_and_a_token_endpoint_are_hosts_that_are_logged_in_at() -> None:
    registry = PlanRegistry("https://registry.example/path", CREDENTIALS)
    assert list_login_hosts(replace(OPEN, registry=registry)) == ["registry.example"]
    assert list_login_hosts(replace(OPEN, registry=PlanRegistry("https://registry.example"))) == []
    assert list_login_hosts(replace(OPEN, registry=PlanRegistry("https://[x", CREDENTIALS))) == ["https://[x"]
    assert list_login_hosts(replace(OPEN, security=PlanSecurity("SSL"))) == []


def plan_of(workers: int = 1, **more: object) -> Plan:
    topics = TopicSelection((Selector("literal", "t"),))
    flow = PlanFlow("a-to-b", "a", "b", topics, workers=workers, engine="process", **more)  # type: ignore[arg-type]
    return seal_plan(Plan("shop", (OPEN, TARGET), (flow,)))


def test_a_plan_shows_what_applying_writes_of_fleets() -> None:
    plan = plan_of(2)
    first = build_fleet_record(plan, "b", None)
    told = {each.field: (each.live, each.wanted) for each in find_fleet_changes(plan, {})}
    assert told["workers"] == (None, "2")
    assert told["clusters"] == (None, "a, b")
    ordered = replace(first, workers=5, state="stopped")
    assert find_fleet_changes(plan, {first.key: first}) == find_fleet_changes(plan, {first.key: ordered}) == []
    changed = plan_of(3, placement="task")
    told = {each.field: (each.live, each.wanted) for each in find_fleet_changes(changed, {first.key: ordered})}
    assert told == {
        "workers": ("5", "3"),
        "placement": ("embedded", "task"),
        "plan": (first.plan_hash, changed.hash),
    }


def test_applying_keeps_what_was_ordered_unless_the_file_asks_for_another_number() -> None:
    first = build_fleet_record(plan_of(2), "b", None)
    assert (first.state, first.workers, first.planned, first.superseded) == ("running", 2, 2, ())
    assert build_fleet_record(plan_of(2), "b", first) == first
    ordered = replace(first, state="stopped", workers=5, restarts=3)
    again = build_fleet_record(plan_of(2, placement="task"), "b", ordered)
    assert (again.state, again.workers, again.restarts, again.placement) == ("stopped", 5, 3, "task")
    assert again.superseded == (first.plan_hash,)
    assert build_fleet_record(plan_of(3), "b", ordered).workers == 3
    assert build_fleet_record(plan_of(2), "b", again).superseded == (again.plan_hash,)
    assert "password" not in str(again.to_json())
