"""MIG: migrations and cutover. One module a rule; each has two lines here, sorted by code."""

from __future__ import annotations

from topology.rule import Rule
from topology.rules.mig import (
    mig801_topic_in_no_wave,
    mig802_topic_in_two_waves,
    mig803_group_split,
    mig804_transaction_split,
    mig805_missing_lag_gate,
    mig806_nonzero_lag_gate,
    mig807_no_rollback,
    mig808_rollback_without_reverse,
    mig809_producers_first_without_reverse,
    mig810_no_straggler_watch,
    mig811_straggler_watch_too_short,
    mig812_no_verification,
    mig813_sample_too_small,
    mig814_window_too_short,
    mig815_naive_window,
    mig816_wave_cycle,
    mig817_decommission_before_soak,
    mig818_big_bang,
    mig819_offset_commit_to_live_group,
    mig820_alive_flow_edit,
    mig821_undefined_flow,
)

RULES: tuple[Rule, ...] = (
    mig801_topic_in_no_wave.RULE,
    mig802_topic_in_two_waves.RULE,
    mig803_group_split.RULE,
    mig804_transaction_split.RULE,
    mig805_missing_lag_gate.RULE,
    mig806_nonzero_lag_gate.RULE,
    mig807_no_rollback.RULE,
    mig808_rollback_without_reverse.RULE,
    mig809_producers_first_without_reverse.RULE,
    mig810_no_straggler_watch.RULE,
    mig811_straggler_watch_too_short.RULE,
    mig812_no_verification.RULE,
    mig813_sample_too_small.RULE,
    mig814_window_too_short.RULE,
    mig815_naive_window.RULE,
    mig816_wave_cycle.RULE,
    mig817_decommission_before_soak.RULE,
    mig818_big_bang.RULE,
    mig819_offset_commit_to_live_group.RULE,
    mig820_alive_flow_edit.RULE,
    mig821_undefined_flow.RULE,
)
