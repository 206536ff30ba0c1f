"""SYN009 union-conflict: two keys where exactly one is allowed.

Why: which of them wins would be luck.

Source: confluentinc/kcp internal/manifest/validate.go refuses such pairs
"""

from watershed.topology.rule import Rule, build_loader_check

RULE = Rule("SYN009", "union-conflict", "error", __doc__, build_loader_check("SYN009"))
