"""TPC: topic configuration. One module a rule; each has two lines here, sorted by code."""

from __future__ import annotations

from topology.rule import Rule
from topology.rules.tpc import (
    tpc401_internal_topic_selected,
    tpc402_streams_internal_topic,
    tpc403_rf_exceeds_brokers,
    tpc404_min_isr_too_high,
    tpc405_rf_below_three,
    tpc406_retention_below_outage,
    tpc407_target_retention_shorter,
    tpc408_tombstone_window,
    tpc409_compacted_merge,
    tpc410_cleanup_policy_differs,
    tpc411_partition_count_differs,
    tpc412_more_partitions_at_target,
    tpc413_merge_partition_mismatch,
    tpc414_message_size,
    tpc415_timestamp_type,
    tpc416_tiered_storage_synced,
    tpc417_latest_with_discovery,
    tpc418_auto_create_target,
    tpc419_gap_policy_continue,
    tpc420_compression_recompress,
    tpc421_internal_target_name,
    tpc422_compressed_already,
)

TPC_RULES: tuple[Rule, ...] = (
    tpc401_internal_topic_selected.RULE,
    tpc402_streams_internal_topic.RULE,
    tpc403_rf_exceeds_brokers.RULE,
    tpc404_min_isr_too_high.RULE,
    tpc405_rf_below_three.RULE,
    tpc406_retention_below_outage.RULE,
    tpc407_target_retention_shorter.RULE,
    tpc408_tombstone_window.RULE,
    tpc409_compacted_merge.RULE,
    tpc410_cleanup_policy_differs.RULE,
    tpc411_partition_count_differs.RULE,
    tpc412_more_partitions_at_target.RULE,
    tpc413_merge_partition_mismatch.RULE,
    tpc414_message_size.RULE,
    tpc415_timestamp_type.RULE,
    tpc416_tiered_storage_synced.RULE,
    tpc417_latest_with_discovery.RULE,
    tpc418_auto_create_target.RULE,
    tpc419_gap_policy_continue.RULE,
    tpc420_compression_recompress.RULE,
    tpc421_internal_target_name.RULE,
    tpc422_compressed_already.RULE,
)
