"""SYN005 missing-unit: a bare number for a duration, a size or a rate.

Why: 30 may be milliseconds, seconds or minutes; both readings have hurt people.

Source: segmentio/topicctl needs both `retentionMinutes` and `retention.ms`, and must forbid setting both
"""

from watershed.topology.rule import Rule, build_loader_check

RULE = Rule("SYN005", "missing-unit", "error", __doc__, build_loader_check("SYN005"))
