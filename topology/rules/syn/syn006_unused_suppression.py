"""SYN006 unused-suppression: a `lint: ignore` comment that silences nothing.

Why: it rots into a blanket permit.

Source: astral-sh/ruff RUF100; sqlfluff noqa
"""

from watershed.topology.rule import Rule, build_loader_check

RULE = Rule("SYN006", "unused-suppression", "warning", __doc__, build_loader_check("SYN006"), ignorable=False)
