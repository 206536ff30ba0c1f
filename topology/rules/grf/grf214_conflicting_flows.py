"""GRF214 conflicting-flows: two flows with one id.

Why: one of two processes that fight over one id silently loses.

Bad:

    flows:
      - source: a
        target: b
        topics: {include: [orders]}
      - source: a
        target: b
        topics: {include: [payments]}

Good:

    flows:
      - source: a
        target: b
        topics: {include: [orders]}
      - source: a
        target: b
        suffix: payments
        topics: {include: [payments]}

Source: strimzi/proposals#178 ("last one wins"); apache/kafka docs/ops.html, Preventing Configuration Conflicts
"""

from topology.rule import Rule, said_by_loader

RULE = Rule("GRF214", "conflicting-flows", "error", __doc__, said_by_loader("GRF214"))
