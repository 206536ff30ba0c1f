"""SYN: the file and its schema. One module a rule; each has two lines here, sorted by code."""

from __future__ import annotations

from watershed.topology.rule import Rule
from watershed.topology.rules.syn import (
    syn001_yaml_syntax,
    syn002_duplicate_key,
    syn003_unknown_key,
    syn004_ambiguous_scalar,
    syn005_missing_unit,
    syn006_unused_suppression,
    syn007_suppression_without_reason,
    syn008_deprecated_field,
    syn009_union_conflict,
    syn010_empty_selector,
    syn011_wrong_type,
    syn012_missing_key,
    syn014_yaml_feature,
    syn015_wrong_expression,
    syn016_unfilled_placeholder,
    syn018_wrong_external_flow,
    syn019_contradictory_layout,
)

SYN_RULES: tuple[Rule, ...] = (
    syn001_yaml_syntax.RULE,
    syn002_duplicate_key.RULE,
    syn003_unknown_key.RULE,
    syn004_ambiguous_scalar.RULE,
    syn005_missing_unit.RULE,
    syn006_unused_suppression.RULE,
    syn007_suppression_without_reason.RULE,
    syn008_deprecated_field.RULE,
    syn009_union_conflict.RULE,
    syn010_empty_selector.RULE,
    syn011_wrong_type.RULE,
    syn012_missing_key.RULE,
    syn014_yaml_feature.RULE,
    syn015_wrong_expression.RULE,
    syn016_unfilled_placeholder.RULE,
    syn018_wrong_external_flow.RULE,
    syn019_contradictory_layout.RULE,
)
