"""SYN014 yaml-feature: an anchor, alias, tag or second document.

Why: what a line says must not depend on a line elsewhere; one level of `defaults:` does what anchors are used for,
and its origin can be explained.

Source: design decision 7 of the topology language; PyYAML expands aliases without a bound ("billion laughs")
"""

from watershed.topology.rule import Rule, build_loader_check

RULE = Rule("SYN014", "yaml-feature", "error", __doc__, build_loader_check("SYN014"))
