"""SYN010 empty-selector: a list of topics (or addresses, or waves) that is empty.

Why: elsewhere "empty means all" deleted topics; here nothing would happen, which is not what a section is written
for.

Source: kafka-ops/julie#514
"""

from watershed.topology.rule import Rule, build_loader_check

RULE = Rule("SYN010", "empty-selector", "error", __doc__, build_loader_check("SYN010"))
