"""SYN006 unused-suppression: a `lint: ignore` comment that silences nothing.

Why: it rots into a blanket permit.

Bad:

    flows:
      - source: a  # lint: ignore[SYN005] the unit is obvious
        target: b
        topics: {include: [orders]}

Good:

    flows:
      - source: a
        target: b
        topics: {include: [orders]}

Source: astral-sh/ruff RUF100; sqlfluff noqa
"""

from topology.rule import Rule, build_loader_check

RULE = Rule("SYN006", "unused-suppression", "warning", __doc__, build_loader_check("SYN006"), ignorable=False)
