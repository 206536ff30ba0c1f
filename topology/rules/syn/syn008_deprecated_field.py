"""SYN008 deprecated-field: an imported file uses a name that its product does not know any more.

Why: Kafka 4 and Strimzi v1 removed the old names of MirrorMaker 2. A mirror with an old name runs with the default,
which copies more than the file says. `topology import` reads the old name and reports it.

Source: apache/kafka KIP-629, removed in 4.0; strimzi/strimzi-kafka-operator CHANGELOG.md
"""

from watershed.topology.rule import Rule, build_loader_check

RULE = Rule("SYN008", "deprecated-field", "warning", __doc__, build_loader_check("SYN008"))
