"""What `topology plan` says of guarantees, from capabilities in memory, of compression, and of changed records."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from watershed.cutover.operations.plan_review import PlanReview, decide_guarantees, encode_guarantee, render_guarantees
from watershed.replicator.compression_forecast import CompressionForecast
from watershed.topology.cluster_capabilities import ClusterCapabilities, RequestVersions
from watershed.topology.delivery_guarantee import list_request_needs
from watershed.topology.egress_compression import EgressCompression
from watershed.topology.external_flows import ExternalFlow
from watershed.topology.inventory import Inventory, InventoryCluster
from watershed.topology.lint import LintResult
from watershed.topology.plan import Plan, PlanCluster, PlanFlow
from watershed.topology.record_transform import RecordTransform
from watershed.topology.selectors import TopicSelection

EVERYTHING = {each.request: RequestVersions(0, 99) for each in list_request_needs("target", "transactions")}
OLD = ClusterCapabilities("x", "id", 1, 1, 1, EVERYTHING, topic_ids=False)
FULL = replace(OLD, requests=EVERYTHING | {"describe_producers": RequestVersions(0, 0)}, topic_ids=True)
WITHOUT = replace(FULL, requests={name: each for name, each in FULL.requests.items() if name != "end_txn"})
FLOWS = (
    PlanFlow("one", "a", "b", TopicSelection(())),
    PlanFlow("two", "a", "b", TopicSelection(()), delivery="transactions"),
)
PLAN = Plan("shop", (PlanCluster("a", ("k:1",)), PlanCluster("b", ("l:1",))), FLOWS)


def inventory(**capabilities: ClusterCapabilities | None) -> Inventory:
    return Inventory(
        {alias: InventoryCluster(alias, "id", 1, capabilities=each) for alias, each in capabilities.items()}
    )


@pytest.mark.parametrize(
    ("target", "lines"),
    [
        (FULL, ["  exactly_once: sequence: 1 flow (one)", "  exactly_once: transactions: 1 flow (two)"]),
        (
            OLD,
            [
                "  exactly_once: sequence: 1 flow (one)",
                "    brokers of x do not take describe_producers (Kafka 2.8), so each takeover of a partition, after a "
                "crash or a lost connection, waits 35 s for a target log that stands still",
                "    x gives topics no ids (Kafka 2.8), so a target topic that is made anew is told by its log alone "
                "(docs/guarantees.md)",
                "  exactly_once: transactions: 1 flow (two)",
                "    x gives topics no ids (Kafka 2.8), so a target topic that is made anew is told by its log alone "
                "(docs/guarantees.md)",
            ],
        ),
        (WITHOUT, ["  exactly_once: sequence: 1 flow (one)", "! refused, see CLU113: 1 flow (two)"]),
        (None, ["! guarantee not known, the brokers could not be asked: 2 flows (one, two)"]),
    ],
)
def test_lines(target: ClusterCapabilities | None, lines: list[str]) -> None:
    decisions = decide_guarantees(PLAN, inventory(a=FULL, b=target))
    assert list(render_guarantees(PLAN, decisions)) == lines


def test_what_is_not_known_is_null_and_what_is_missing_is_told_all_the_same() -> None:
    assert encode_guarantee(None) == {"guarantee": None, "guarantee_executed": None, "missing": [], "notes": []}
    found = encode_guarantee(decide_guarantees(PLAN, inventory(a=None, b=WITHOUT)).get("two"))
    assert (found["guarantee"], found["guarantee_executed"]) == ("at_least_once, proven", False)
    assert [(each["cluster"], each["what"]) for each in found["missing"]] == [("x", "end_txn at x")]
    assert "one" not in decide_guarantees(PLAN, inventory(a=None, b=WITHOUT))


def test_what_compression_would_save_is_told() -> None:
    forecast = CompressionForecast("one", EgressCompression("zstd", 3), 2, 1, 2_048, 0.5)
    lint = LintResult("shop.yaml", {}, (), (), {})
    review = PlanReview(PLAN, inventory(a=FULL, b=FULL), [], lint, [], [], [forecast])
    assert "  one compresses (zstd, level 3): about 50% fewer bytes, by 2.0 KiB of 1 of 2 topics" in review.render()
    [told] = json.loads(review.encode())["compression"]
    assert (told["flow"], told["codec"], told["level"], told["saved_share"]) == ("one", "zstd", 3, 0.5)


def test_what_others_copy_is_told_and_what_our_flows_leave_to_them() -> None:
    lint = LintResult("shop.yaml", {}, (), (), {})
    marked = ExternalFlow("back", "mirrormaker2", "b", "a", TopicSelection(()), marks_with="mark")
    unmarked = replace(marked, id="more", source="c", marks_with=None)
    local = replace(FLOWS[0], forward="local", beside=(marked, unmarked))
    plan = replace(PLAN, flows=(local, replace(FLOWS[1], beside=(unmarked,))), external_flows=(marked,))
    review = PlanReview(plan, inventory(a=FULL, b=FULL), [], lint, [], [], [])
    lines = list(review.render())
    at = lines.index("  copied by others, never by us:")
    assert lines[at + 1].startswith("    back: b to a by MirrorMaker 2")
    assert [line for line in lines if " brings to " in line] == [
        "  one does not copy what back brings to a",
        "  one cannot tell from what is born there, and copies, what more brings to a",
    ]
    [told] = json.loads(review.encode())["copied_by_others"]
    assert (told["id"], told["tool"], told["marks_with"]) == ("back", "mirrormaker2", "mark")


def test_what_spark_planned_is_told_beside_the_transform_and_changed_keys_are_said() -> None:
    transform = RecordTransform(changes=(("key", "md5(key)"),))
    plan = replace(PLAN, flows=(replace(FLOWS[0], transform=transform), *FLOWS[1:]))
    lint = LintResult("shop.yaml", {}, (), (), {})
    review = PlanReview(plan, inventory(a=FULL, b=FULL), [], lint, [], [], spark_plans={"one": "0123456789abcdef"})
    lines = list(review.render())
    assert f"  one sets key (transform {transform.hash[:12]}, Spark plan 0123456789ab)" in lines
    assert "  one changes keys; records keep their partition, so equal new keys may lie in several" in lines
    told = {each["id"]: each["spark_plan"] for each in json.loads(review.encode())["flows"]}
    assert told == {"one": "0123456789abcdef", "two": None}
