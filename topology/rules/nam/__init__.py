"""NAM: names and selectors. One module a rule; each has two lines here, sorted by code."""

from __future__ import annotations

from watershed.topology.rule import Rule
from watershed.topology.rules.nam import (
    nam301_name_too_long,
    nam302_illegal_characters,
    nam303_metric_collision,
    nam304_rename_not_injective,
    nam305_rename_not_reversible,
    nam306_unescaped_dot,
    nam307_regex_catches_everything,
    nam308_heartbeat_suffix,
    nam309_separator_in_alias,
    nam310_mixed_separators,
    nam311_wildcard_consumer_trap,
    nam313_class_without_dots,
    nam314_undeclared_mirrormaker,
    nam315_mirrormaker_topic_taken,
)

NAM_RULES: tuple[Rule, ...] = (
    nam301_name_too_long.RULE,
    nam302_illegal_characters.RULE,
    nam303_metric_collision.RULE,
    nam304_rename_not_injective.RULE,
    nam305_rename_not_reversible.RULE,
    nam306_unescaped_dot.RULE,
    nam307_regex_catches_everything.RULE,
    nam308_heartbeat_suffix.RULE,
    nam309_separator_in_alias.RULE,
    nam310_mixed_separators.RULE,
    nam311_wildcard_consumer_trap.RULE,
    nam313_class_without_dots.RULE,
    nam314_undeclared_mirrormaker.RULE,
    nam315_mirrormaker_topic_taken.RULE,
)
