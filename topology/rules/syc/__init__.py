"""SYC: what is synchronised. One module a rule; each has two lines here, sorted by code."""

from __future__ import annotations

from topology.rule import Rule
from topology.rules.syc import (
    syc501_group_sync_to_active_group,
    syc502_group_sync_both_ways,
    syc503_raw_offset_copy,
    syc504_offset_beyond_end,
    syc505_group_reads_uncopied_topic,
    syc506_tool_groups_selected,
    syc507_offset_expiry,
    syc508_group_interval_above_rpo,
    syc509_config_sync_fights_override,
    syc510_durability_key_synced,
    syc511_acl_sync_read_only,
    syc512_acl_widening,
    syc513_schema_ids_untranslated,
    syc514_subject_does_not_follow_rename,
    syc515_read_uncommitted,
    syc516_discovery_slower_than_lag,
    syc517_metadata_both_ways,
    syc518_schemas_without_registry,
    syc519_one_registry_for_both,
    syc520_transform_with_schema_ids,
    syc521_transform_without_registry,
    syc522_transform_changes_keys,
)

SYC_RULES: tuple[Rule, ...] = (
    syc501_group_sync_to_active_group.RULE,
    syc502_group_sync_both_ways.RULE,
    syc503_raw_offset_copy.RULE,
    syc504_offset_beyond_end.RULE,
    syc505_group_reads_uncopied_topic.RULE,
    syc506_tool_groups_selected.RULE,
    syc507_offset_expiry.RULE,
    syc508_group_interval_above_rpo.RULE,
    syc509_config_sync_fights_override.RULE,
    syc510_durability_key_synced.RULE,
    syc511_acl_sync_read_only.RULE,
    syc512_acl_widening.RULE,
    syc513_schema_ids_untranslated.RULE,
    syc514_subject_does_not_follow_rename.RULE,
    syc515_read_uncommitted.RULE,
    syc516_discovery_slower_than_lag.RULE,
    syc517_metadata_both_ways.RULE,
    syc518_schemas_without_registry.RULE,
    syc519_one_registry_for_both.RULE,
    syc520_transform_with_schema_ids.RULE,
    syc521_transform_without_registry.RULE,
    syc522_transform_changes_keys.RULE,
)
