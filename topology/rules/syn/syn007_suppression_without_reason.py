"""SYN007 suppression-without-reason: a `lint: ignore` comment that does not say why.

Why: nobody can judge it later, so it silences nothing.

Source: terraform-linters/tflint docs/user-guide/annotations.md
"""

from watershed.topology.rule import Rule, build_loader_check

RULE = Rule("SYN007", "suppression-without-reason", "warning", __doc__, build_loader_check("SYN007"), ignorable=False)
