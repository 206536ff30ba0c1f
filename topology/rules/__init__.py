"""The registry: one module a rule, listed by hand and sorted by code. A new rule is a new module and a new line."""

from __future__ import annotations

from topology.rule import Rule
from topology.rules import (
    clu101_undefined_cluster,
    clu107_self_flow,
    grf201_identity_cycle,
    grf203_prefix_growth,
    grf204_multi_writer_topic,
    grf205_diamond_double_delivery,
    grf214_conflicting_flows,
    mig821_undefined_flow,
    nam305_rename_not_reversible,
    syn001_yaml_syntax,
    syn002_duplicate_key,
    syn003_unknown_key,
    syn004_ambiguous_scalar,
    syn005_missing_unit,
    syn006_unused_suppression,
    syn007_suppression_without_reason,
    syn009_union_conflict,
    syn010_empty_selector,
    syn011_wrong_type,
    syn012_missing_key,
    syn014_yaml_feature,
)

RULES: tuple[Rule, ...] = (
    clu101_undefined_cluster.RULE,
    clu107_self_flow.RULE,
    grf201_identity_cycle.RULE,
    grf203_prefix_growth.RULE,
    grf204_multi_writer_topic.RULE,
    grf205_diamond_double_delivery.RULE,
    grf214_conflicting_flows.RULE,
    mig821_undefined_flow.RULE,
    nam305_rename_not_reversible.RULE,
    syn001_yaml_syntax.RULE,
    syn002_duplicate_key.RULE,
    syn003_unknown_key.RULE,
    syn004_ambiguous_scalar.RULE,
    syn005_missing_unit.RULE,
    syn006_unused_suppression.RULE,
    syn007_suppression_without_reason.RULE,
    syn009_union_conflict.RULE,
    syn010_empty_selector.RULE,
    syn011_wrong_type.RULE,
    syn012_missing_key.RULE,
    syn014_yaml_feature.RULE,
)
