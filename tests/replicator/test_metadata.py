"""What configs, rights, quotas and users come to, decided without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from watershed.clusters.errors import Unauthorised
from watershed.clusters.partition_status_records import PartitionStatus
from watershed.clusters.required_role_acls import AccountRole, derive_required_rights
from watershed.clusters.settings import ConnectionSettings
from watershed.clusters.wire.admin_reads import QuotaEntity, TopicConfig
from watershed.replicator.sync.acls import find_acl_differences
from watershed.replicator.sync.configs import find_aligning_topics, find_config_differences
from watershed.replicator.sync.quotas import find_quota_differences
from watershed.replicator.sync.sync_kind import DifferenceOutcome, SyncClusters
from watershed.replicator.sync.sync_on_apply import apply_sync_differences, find_sync_differences
from watershed.replicator.sync.users import find_user_differences
from watershed.topology.drift import FieldDrift
from watershed.topology.inventory import InventoryAcl
from watershed.topology.plan import Plan, PlanFlow
from watershed.topology.selectors import Selector, TopicSelection
from watershed.topology.sync_settings import AclSync, NameFilter, QuotaSync, SyncMode, SyncSettings, UserSync

EVERY = NameFilter()
TARGET = ConnectionSettings("b", ("b:9092",), username="copier")
ALL = TopicSelection((Selector("glob", "*"),))
SYNC = SyncSettings(acls=AclSync("continuous"), quotas=QuotaSync("continuous"), users=UserSync("continuous"))
FLOW = PlanFlow("a-to-b", "a", "b", ALL, sync_configs="continuous", sync=SYNC)
OTHER = replace(FLOW, id="c-to-b", source="c")


def own(value: str, otherwise: str | None = "0", *, fixed: bool = False) -> TopicConfig:
    return TopicConfig(value, True, fixed, otherwise)


def inherited(value: str) -> TopicConfig:
    return TopicConfig(value, False, False, value)


def configs(
    here: dict[str, TopicConfig], there: dict[str, TopicConfig], flow: PlanFlow = FLOW, *flows: PlanFlow
) -> list[tuple[str, str | None, str | None, str, bool]]:
    found = find_config_differences(flow, (flow, *flows), "orders", here, there)
    assert all(each.why for each in found if not each.applied)
    return [(each.field, each.live, each.wanted, each.drift, each.applied) for each in found]


@pytest.mark.parametrize(
    ("key", "here", "there", "expected"),
    [
        ("retention.ms", own("9"), own("9"), None),
        ("retention.ms", own("9"), inherited("9"), None),
        ("retention.ms", own("9"), inherited("5"), ("5", "9", "safe", True)),
        ("retention.ms", own("-1"), own("5"), ("5", "-1", "safe", True)),
        ("retention.ms", own("5"), own("9"), ("9", "5", "unsafe", False)),
        ("retention.ms", own("5"), own("-1"), ("-1", "5", "unsafe", False)),
        ("retention.ms", inherited("5"), own("9", "20"), ("9", None, "safe", True)),
        ("retention.ms", inherited("5"), own("9", "5"), ("9", None, "unsafe", False)),
        ("retention.ms", inherited("5"), own("9", "9"), None),
        ("retention.ms", inherited("5"), own("9", None), ("9", None, "unknown", False)),
        ("retention.ms", inherited("5"), inherited("9"), None),
        ("cleanup.policy", own("compact"), inherited("delete"), ("delete", "compact", "unsafe", False)),
        ("cleanup.policy", inherited("delete"), own("compact", "delete"), ("compact", None, "unsafe", False)),
        ("segment.ms", own("1"), own("2"), ("2", "1", "safe", True)),
        ("flush.ms", own("1"), own("2"), ("2", "1", "unknown", False)),
        ("min.compaction.lag.ms", own("1"), own("2"), ("2", "1", "unsafe", False)),
        ("local.retention.ms", own("-2"), own("2"), ("2", "-2", "safe", True)),
        ("retention.ms", own("9"), own("5", fixed=True), ("5", "9", "unsupported", False)),
        ("retention.ms", own("9", fixed=True), own("5", "5"), None),
        ("compression.type", own("zstd"), own("gzip"), None),
        ("min.insync.replicas", own("2"), inherited("1"), None),
        ("vendor.key", own("x"), None, (None, "x", "unsupported", False)),
        ("vendor.secret", own("x"), TopicConfig(None, True, False, None), None),
        ("vendor.secret", TopicConfig(None, True, False, None), inherited("y"), None),
    ],
)
def test_configs(key: str, here: TopicConfig, there: TopicConfig | None, expected: tuple[Any, ...] | None) -> None:
    found = configs({key: here}, {} if there is None else {key: there})
    assert found == ([] if expected is None else [(key, *expected)])


def test_keys_that_the_file_leaves_out_are_left_alone() -> None:
    here, there = {"retention.ms": own("9"), "segment.ms": own("9")}, {"retention.ms": own("5"), "segment.ms": own("5")}
    assert configs(here, there, replace(FLOW, sync_configs_exclude=("retention.ms",))) == [
        ("segment.ms", "5", "9", "safe", True)
    ]
    assert configs(here, there, replace(FLOW, sync_configs_include=("retention.ms",))) == [
        ("retention.ms", "5", "9", "safe", True)
    ]
    only_there = {"retention.ms": own("5", "9"), "segment.ms": own("5", "9")}
    assert configs({}, only_there, replace(FLOW, sync_configs_include=("retention.ms",))) == [
        ("retention.ms", "5", None, "safe", True)
    ]


def test_what_the_file_sets_wins_over_the_source() -> None:
    flow = replace(FLOW, configs_set=(("retention.ms", "7"),))
    assert configs({"retention.ms": own("9")}, {"retention.ms": own("7")}, flow) == []
    assert configs({}, {"retention.ms": own("5")}, flow) == [("retention.ms", "5", "7", "safe", True)]


def test_batches_that_the_source_takes_by_its_brokers_default_stay_allowed() -> None:
    here = {"max.message.bytes": inherited("3000000")}
    assert configs(here, {"max.message.bytes": own("3000000", "1000000")}) == []
    assert configs(here, {"max.message.bytes": inherited("1000000")}) == [
        ("max.message.bytes", "1000000", "3000000", "safe", True)
    ]


def test_topics_that_are_being_aligned_are_left_alone() -> None:
    reports = [
        PartitionStatus("a-to-b", topic, topic, number, state)
        for topic, number, state in (("x", 0, "running"), ("x", 1, "aligning"), ("y", 0, "running"))
    ]
    assert find_aligning_topics(FLOW, reports) == {"x"}
    assert find_aligning_topics(OTHER, reports) == frozenset()


def test_what_a_topic_has_while_it_is_aligned_is_not_mended() -> None:
    aligned = replace(FLOW, offsets="aligned")
    kept = ("message.timestamp.before.max.ms", "retention.ms")
    values = (str((1 << 63) - 1), "-1")
    here = {key: own("9") for key in ("segment.ms", *kept)}
    there = {"segment.ms": own("1000")} | {key: own(value) for key, value in zip(kept, values, strict=True)}
    assert configs(here, there, aligned) == [
        ("message.timestamp.before.max.ms", values[0], "9", "unknown", False),
        ("retention.ms", "-1", "9", "unknown", False),
        ("segment.ms", "1000", "9", "safe", True),
    ]


def test_a_topic_of_two_flows_is_not_set_to_and_fro() -> None:
    here, there = {"retention.ms": own("9")}, {"retention.ms": own("5")}
    [(*_, applied)] = configs(here, there, FLOW, OTHER)
    assert not applied
    assert configs(here, there, FLOW, replace(OTHER, sync_configs="never"))[0][-1]
    elsewhere = TopicSelection((Selector("literal", "payments"),))
    assert configs(here, there, FLOW, replace(OTHER, topics=elsewhere))[0][-1]


def test_set_wins_among_two_flows_and_two_sets_that_differ_are_told() -> None:
    here, there = {"retention.ms": own("9")}, {"retention.ms": own("5")}
    seven = replace(OTHER, configs_set=(("retention.ms", "7"),))
    assert configs(here, there, FLOW, seven) == [("retention.ms", "5", "7", "safe", True)]
    eight = replace(FLOW, configs_set=(("retention.ms", "8"),))
    [difference] = find_config_differences(eight, (eight, seven), "orders", here, there)
    assert not difference.applied
    assert "a-to-b 8, c-to-b 7" in difference.why
    same = replace(FLOW, configs_set=(("retention.ms", "7"),))
    assert configs(here, there, same, seven) == [("retention.ms", "5", "7", "safe", True)]


ANN: QuotaEntity = (("user", "ann"),)
WEB: QuotaEntity = (("client-id", "web"), ("user", "ann"))
ANY: QuotaEntity = (("user", None),)
IP: QuotaEntity = (("ip", "10.0.0.1"),)
RATE = "producer_byte_rate"


def quotas(
    here: dict[QuotaEntity, dict[str, float]],
    there: dict[QuotaEntity, dict[str, float]],
    *flows: PlanFlow,
    names: NameFilter = EVERY,
) -> list[tuple[str, str, str | None, str | None, bool]]:
    flow = replace(FLOW, sync=replace(SYNC, quotas=QuotaSync("continuous", names)))
    found = find_quota_differences(flow, (flow, *flows), here, there, TARGET)
    assert all(each.why for each in found if not each.applied)
    return [(each.name, each.field, each.live, each.wanted, each.applied) for each in found]


def test_quotas_are_given_changed_and_never_taken_away() -> None:
    here = {ANN: {RATE: 5.0, "request_percentage": 0.5}, WEB: {RATE: 6.0}, ANY: {RATE: 7.0}}
    there = {ANN: {RATE: 4.0, "consumer_byte_rate": 1.0}, ANY: {RATE: 7.0}}
    assert quotas(here, there) == [
        ("user=ann", "consumer_byte_rate", "1", None, False),
        ("user=ann", RATE, "4", "5", True),
        ("user=ann", "request_percentage", None, "0.5", True),
        ("user=ann, client-id=web", RATE, None, "6", True),
    ]


def test_limits_of_addresses_and_of_ourselves_stay() -> None:
    assert quotas({IP: {"connection_creation_rate": 9.0}}, {}) == [
        ("ip=10.0.0.1", "connection_creation_rate", None, "9", False)
    ]
    assert quotas({}, {IP: {"connection_creation_rate": 9.0}, (("user", "copier"),): {RATE: 1.0}}) == []


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (NameFilter(), ["user=<default>", "user=ann", "user=ann, client-id=web"]),
        (NameFilter(include=(Selector("literal", "ann"),)), ["user=ann", "user=ann, client-id=web"]),
        (NameFilter(include=(Selector("literal", "default"),)), ["user=<default>"]),
        (NameFilter(exclude=(Selector("glob", "w*"),)), ["user=<default>", "user=ann"]),
    ],
)
def test_quotas_are_chosen_by_the_names_in_them(names: NameFilter, expected: list[str]) -> None:
    here = {ANN: {RATE: 1.0}, WEB: {RATE: 1.0}, ANY: {RATE: 1.0}}
    assert [each[0] for each in quotas(here, {}, names=names)] == expected


def test_a_limit_of_our_own_user_does_not_slow_the_copying() -> None:
    ours, with_client = (("user", "copier"),), (("client-id", "web"), ("user", "copier"))
    assert quotas({ours: {RATE: 5.0}, with_client: {RATE: 5.0}}, {}) == []
    assert quotas({ours: {RATE: 5.0}}, {ours: {RATE: 9.0}}) == []


def test_two_sources_of_one_quota_do_not_set_it_to_and_fro() -> None:
    assert quotas({ANN: {RATE: 5.0}}, {}, OTHER)[0][-1]
    assert not quotas({ANN: {RATE: 5.0}}, {ANN: {RATE: 4.0}}, OTHER)[0][-1]
    assert quotas({}, {ANN: {RATE: 4.0}}, OTHER) == []
    assert quotas({ANN: {RATE: 5.0}}, {ANN: {RATE: 4.0}}, replace(FLOW, id="a-to-b-more"))[0][-1]


def test_users_are_named_with_the_command_that_makes_them() -> None:
    here = {"ann": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 8192}, "bob": {"SCRAM-SHA-512": 4096}, "c'o": {"X": 4096}}
    there = {"ann": {"SCRAM-SHA-512": 4096, "SCRAM-SHA-256": 9999}, "bob": {"SCRAM-SHA-512": 4096}}
    found = find_user_differences(FLOW, here, there, TARGET)
    assert [(each.name, each.field, each.live, each.wanted, each.drift, each.applied) for each in found] == [
        ("ann", "SCRAM-SHA-512", "4096 iterations", "8192 iterations", "unsupported", False),
        ("c'o", "X", None, "4096 iterations", "unsupported", False),
    ]
    assert "--entity-name 'c'\"'\"'o' --add-config 'X=[iterations=4096,password=PASSWORD]'" in found[1].why


def acl(principal: str, operation: str, name: str = "orders", resource: str = "TOPIC") -> InventoryAcl:
    return InventoryAcl(principal, operation, "ALLOW", resource, name, "LITERAL")


def acls(
    here: Sequence[InventoryAcl] | None, there: Sequence[InventoryAcl] | None, *flows: PlanFlow, flow: PlanFlow = FLOW
) -> list[FieldDrift]:
    as_known = [None if each is None else tuple(each) for each in (here, there)]
    found = find_acl_differences(flow, (flow, *flows), *as_known, TARGET)
    assert all(each.why for each in found if not each.applied)
    return found


def test_without_an_authorizer_there_is_one_difference() -> None:
    for here, there, alias in ((None, (), "a"), ((acl("User:ann", "READ"),), None, "b"), (None, None, "a and b")):
        [difference] = acls(here, there)
        assert (difference.name, difference.applied) == (f"authorizer of {alias}", False)
        assert "no authorizer" in difference.why


def test_rights_are_given_and_those_that_lack_at_the_source_told_with_their_command() -> None:
    [missing] = acls([acl("User:ann", "READ")], [])
    assert (missing.name, missing.field, missing.live, missing.wanted) == (
        "topic orders",
        "User:ann READ",
        None,
        "ALLOW",
    )
    assert missing.applied
    [gone] = acls([], [acl("User:an n", "READ")])
    assert (gone.live, gone.wanted, gone.applied) == ("ALLOW", None, False)
    assert (
        "kafka-acls --bootstrap-server b:9092 --command-config admin.properties --remove --force --allow-principal "
        "'User:an n' --allow-host '*' --operation Read --topic orders --resource-pattern-type literal"
    ) in gone.why


def test_our_own_rights_and_those_of_another_flow_are_not_told() -> None:
    assert acls([], [acl("User:copier", "READ")]) == []
    assert acls([], [acl("User:ann", "READ")], OTHER) == []
    assert len(acls([], [acl("User:ann", "READ")], replace(OTHER, sync=SyncSettings()))) == 1


def test_rights_to_other_things_are_one_line_for_each_kind_of_thing() -> None:
    here = [acl("User:ann", "WRITE", f"t{number}", "TRANSACTIONAL_ID") for number in range(5)]
    [told] = acls(here, [])
    assert (told.name, told.wanted) == ("transactional ids of a", "5")
    assert "User:ann WRITE transactional id t0" in told.why
    assert told.why.endswith("and 2 more")
    assert acls(here, here) == []


def test_rights_to_write_are_shown_as_held_back() -> None:
    later = replace(FLOW, sync=replace(SYNC, acls=AclSync("once", include_write="on_failover")))
    [held] = acls([acl("User:ann", "WRITE")], [], flow=later)
    assert not held.applied
    assert "held back" in held.why
    assert acls([acl("User:ann", "WRITE")], [acl("User:ann", "WRITE")], flow=later) == []


class Refusing:
    """A kind that a cluster does not tell about."""

    name = "acls"

    def mode(self, flow: PlanFlow) -> SyncMode:
        return flow.sync.acls.mode

    def every_ms(self, flow: PlanFlow) -> int:
        return 1

    def compare(self, flow: PlanFlow, sides: SyncClusters) -> list[FieldDrift]:
        assert [each.id for each in sides.flows] == ["a-to-b", "c-to-b"]
        raise Unauthorised("cluster a refused reading ACLs")

    def carry(self, flow: PlanFlow, sides: SyncClusters, differences: Sequence[FieldDrift]) -> list[DifferenceOutcome]:
        raise AssertionError("nothing was found")


def test_a_kind_that_is_refused_is_a_difference_and_the_others_go_on() -> None:
    plan = Plan("t", (), (FLOW, OTHER))
    found = find_sync_differences(plan, lambda alias: ConnectionSettings(alias, ()), (Refusing(),))
    assert [(each.kind, each.name, each.applied) for each in found] == [
        ("acls", "of flow a-to-b", False),
        ("acls", "of flow c-to-b", False),
    ]
    done = list(apply_sync_differences(plan, lambda alias: ConnectionSettings(alias, ()), (Refusing(),)))
    assert [each.error for each in done] == ["cluster a refused reading ACLs"] * 2


class Half(Refusing):
    """One difference that is carried over, and one that is left alone."""

    def compare(self, flow: PlanFlow, sides: SyncClusters) -> list[FieldDrift]:
        return [
            FieldDrift("b", "acl", "orders", "READ", None, "ALLOW"),
            FieldDrift("b", "acl", "orders", "WRITE", None, "ALLOW", "unknown", False, "held back"),
        ]

    def carry(self, flow: PlanFlow, sides: SyncClusters, differences: Sequence[FieldDrift]) -> list[DifferenceOutcome]:
        return [DifferenceOutcome(each) for each in differences]


def test_what_is_left_alone_is_told() -> None:
    plan, left = Plan("t", (), (FLOW,)), list[FieldDrift]()
    done = list(apply_sync_differences(plan, lambda alias: ConnectionSettings(alias, ()), (Half(),), left.append))
    assert [each.difference.field for each in done] == ["READ"]
    assert [each.field for each in left] == ["WRITE"]


def needed(role: AccountRole, sync: SyncSettings, configs: SyncMode = "once") -> set[tuple[str, str, str]]:
    """Beyond what a flow without any of it needs: (cluster, resource, operation)."""
    plain = derive_required_rights(Plan("t", (), (replace(FLOW, sync=SyncSettings(), sync_configs="once"),)), role)
    found = derive_required_rights(Plan("t", (), (replace(FLOW, sync=sync, sync_configs=configs),)), role)
    without = {(right.cluster, right.resource, right.name, right.operation) for right in plain}
    return {
        (right.cluster, right.resource, right.operation)
        for right in found
        if (right.cluster, right.resource, right.name, right.operation) not in without
    }


ACLS = {("a", "CLUSTER", "DESCRIBE"), ("b", "CLUSTER", "ALTER")}
QUOTAS = {("a", "CLUSTER", "DESCRIBE_CONFIGS"), ("b", "CLUSTER", "ALTER_CONFIGS")}
USERS = {("a", "CLUSTER", "DESCRIBE"), ("b", "CLUSTER", "DESCRIBE")}


@pytest.mark.parametrize("mode", ["once", "continuous"])
def test_each_kind_needs_its_own_rights_and_the_worker_only_to_keep(mode: SyncMode) -> None:
    for sync, expected in (
        (SyncSettings(acls=AclSync(mode)), ACLS),
        (SyncSettings(quotas=QuotaSync(mode)), QUOTAS),
        (SyncSettings(users=UserSync(mode)), USERS),
    ):
        assert needed("apply", sync) == expected
        assert needed("worker", sync) == (expected if mode == "continuous" else set())
        reading = {(cluster, what, operation.replace("ALTER", "DESCRIBE")) for cluster, what, operation in expected}
        assert needed("observe", sync) == reading
        assert needed("verify", sync) == set()


def test_configs_need_rights_where_they_are_kept_equal() -> None:
    assert needed("apply", SyncSettings(), "never") == needed("worker", SyncSettings(), "never") == set()
    for role in ("apply", "worker"):
        assert needed(role, SyncSettings(), "continuous") == {("b", "TOPIC", "ALTER_CONFIGS")}
    assert needed("observe", SyncSettings(), "continuous") == {
        ("a", "TOPIC", "DESCRIBE_CONFIGS"),
        ("b", "TOPIC", "DESCRIBE_CONFIGS"),
    }
