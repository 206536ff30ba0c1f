"""NAM305 rename-not-reversible: a naming that loses the original name, or is incomplete.

Why: fail-back and offset translation must find the source topic of every copy; two topics under one name are a merge
by accident.

Bad:

    defaults:
      naming: {policy: template, template: "copies"}

Good:

    defaults:
      naming: {policy: template, template: "{topic}.from.{source}"}

Source: own; MirrorMaker 2 builds its map of new topics by name (apache/kafka MirrorSourceConnector.java)
"""

from topology.rule import Rule, said_by_loader

RULE = Rule("NAM305", "rename-not-reversible", "error", __doc__, said_by_loader("NAM305"))
