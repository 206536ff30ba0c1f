"""SLO: lag, capacity, cost. One module a rule; each has two lines here, sorted by code."""

from __future__ import annotations

from watershed.topology.rule import Rule
from watershed.topology.rules.slo import (
    slo701_no_lag_budget,
    slo702_chain_budget,
    slo703_rpo_zero_async,
    slo704_hub_fan_in,
    slo705_hub_fan_out,
    slo706_partition_budget,
    slo707_catch_up_impossible,
    slo708_no_quota,
    slo709_worker_at_wrong_end,
    slo710_task_count,
    slo711_identity_pair_cost,
    slo712_rto_vs_groups,
    slo713_compression_beside_target,
    slo714_breach_without_budget,
    slo715_way_back_stops,
    slo716_breach_loses_more,
)

SLO_RULES: tuple[Rule, ...] = (
    slo701_no_lag_budget.RULE,
    slo702_chain_budget.RULE,
    slo703_rpo_zero_async.RULE,
    slo704_hub_fan_in.RULE,
    slo705_hub_fan_out.RULE,
    slo706_partition_budget.RULE,
    slo707_catch_up_impossible.RULE,
    slo708_no_quota.RULE,
    slo709_worker_at_wrong_end.RULE,
    slo710_task_count.RULE,
    slo711_identity_pair_cost.RULE,
    slo712_rto_vs_groups.RULE,
    slo713_compression_beside_target.RULE,
    slo714_breach_without_budget.RULE,
    slo715_way_back_stops.RULE,
    slo716_breach_loses_more.RULE,
)
