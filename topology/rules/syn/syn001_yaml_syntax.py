"""SYN001 yaml-syntax: the file is not well-formed YAML.

Why: nothing else in it can be judged until it parses.

Source: YAML 1.2.2, https://yaml.org/spec/1.2.2/
"""

from watershed.topology.rule import Rule, build_loader_check

RULE = Rule("SYN001", "yaml-syntax", "error", __doc__, build_loader_check("SYN001"), ignorable=False)
