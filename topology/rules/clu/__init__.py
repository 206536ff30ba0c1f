"""CLU: clusters. One module a rule; each has two lines here, sorted by code."""

from __future__ import annotations

from watershed.topology.rule import Rule
from watershed.topology.rules.clu import (
    clu101_undefined_cluster,
    clu102_duplicate_physical_cluster,
    clu103_relative_alias,
    clu104_unpinned_cluster_id,
    clu105_cluster_id_mismatch,
    clu106_alias_shadows_topic,
    clu107_self_flow,
    clu109_single_bootstrap,
    clu110_unsafe_identifier,
    clu111_stretch_as_flow,
    clu112_unsupported_version,
    clu113_unmet_guarantee,
)

CLU_RULES: tuple[Rule, ...] = (
    clu101_undefined_cluster.RULE,
    clu102_duplicate_physical_cluster.RULE,
    clu103_relative_alias.RULE,
    clu104_unpinned_cluster_id.RULE,
    clu105_cluster_id_mismatch.RULE,
    clu106_alias_shadows_topic.RULE,
    clu107_self_flow.RULE,
    clu109_single_bootstrap.RULE,
    clu110_unsafe_identifier.RULE,
    clu111_stretch_as_flow.RULE,
    clu112_unsupported_version.RULE,
    clu113_unmet_guarantee.RULE,
)
