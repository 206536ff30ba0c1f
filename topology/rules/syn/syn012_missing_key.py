"""SYN012 missing-key: a section without a key that it needs.

Why: there is no default that would be right for everybody.

Source: own
"""

from watershed.topology.rule import Rule, build_loader_check

RULE = Rule("SYN012", "missing-key", "error", __doc__, build_loader_check("SYN012"))
