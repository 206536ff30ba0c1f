"""GRF: loops, duplicates, collisions, starvation. One module a rule; each has two lines here, sorted by code."""

from __future__ import annotations

from watershed.topology.rule import Rule
from watershed.topology.rules.grf import (
    grf201_identity_cycle,
    grf202_origin_guard_insufficient,
    grf203_prefix_growth,
    grf204_multi_writer_topic,
    grf205_diamond_double_delivery,
    grf206_mesh_forwarding,
    grf207_local_forward_breaks_chain,
    grf208_header_dropped,
    grf209_mixed_guard_names,
    grf210_unreachable_standby,
    grf211_missing_reverse_flow,
    grf212_reverse_flow_live,
    grf213_aggregate_feeds_regional,
    grf214_conflicting_flows,
    grf216_selects_nothing,
    grf217_selects_remote_topics,
    grf218_pattern_wider_than_inventory,
    grf219_proof_incomplete,
    grf220_external_loop,
    grf221_copied_by_both,
    grf222_mirror_topic_written,
)

GRF_RULES: tuple[Rule, ...] = (
    grf201_identity_cycle.RULE,
    grf202_origin_guard_insufficient.RULE,
    grf203_prefix_growth.RULE,
    grf204_multi_writer_topic.RULE,
    grf205_diamond_double_delivery.RULE,
    grf206_mesh_forwarding.RULE,
    grf207_local_forward_breaks_chain.RULE,
    grf208_header_dropped.RULE,
    grf209_mixed_guard_names.RULE,
    grf210_unreachable_standby.RULE,
    grf211_missing_reverse_flow.RULE,
    grf212_reverse_flow_live.RULE,
    grf213_aggregate_feeds_regional.RULE,
    grf214_conflicting_flows.RULE,
    grf216_selects_nothing.RULE,
    grf217_selects_remote_topics.RULE,
    grf218_pattern_wider_than_inventory.RULE,
    grf219_proof_incomplete.RULE,
    grf220_external_loop.RULE,
    grf221_copied_by_both.RULE,
    grf222_mirror_topic_written.RULE,
)
