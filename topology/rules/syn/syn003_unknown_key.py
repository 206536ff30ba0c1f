"""SYN003 unknown-key: a key that the language does not know.

Why: a key that is silently ignored looks configured; even a manual of MirrorMaker 2 shows two such typos.

Source: apache/kafka docs/ops.html; segmentio/topicctl pkg/config/load.go refuses them
"""

from watershed.topology.rule import Rule, build_loader_check

RULE = Rule("SYN003", "unknown-key", "error", __doc__, build_loader_check("SYN003"), ignorable=False)
