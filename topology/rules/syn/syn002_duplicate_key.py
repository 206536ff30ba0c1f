"""SYN002 duplicate-key: one key twice in the same mapping.

Why: most loaders keep the last one silently, so a flow or a cluster disappears without a word.

Source: PyYAML 6.0.3 safe_load keeps the last (measured); adrienverge/yamllint key_duplicates.py
"""

from watershed.topology.rule import Rule, build_loader_check

RULE = Rule("SYN002", "duplicate-key", "error", __doc__, build_loader_check("SYN002"), ignorable=False)
