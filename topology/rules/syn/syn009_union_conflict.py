"""SYN009 union-conflict: two keys where exactly one is allowed.

Why: which of them wins would be luck.

Bad:

    clusters:
      a:
        bootstrap: [k1.a.example.internal:9093]
        security: {protocol: SASL_SSL, mechanism: PLAIN, credentials: {env: KAFKA_A, file: /etc/kafka/a}}
      b: {bootstrap: [k1.b.example.internal:9093]}

Good:

    clusters:
      a:
        bootstrap: [k1.a.example.internal:9093]
        security: {protocol: SASL_SSL, mechanism: PLAIN, credentials: {env: KAFKA_A}}
      b: {bootstrap: [k1.b.example.internal:9093]}

Source: confluentinc/kcp internal/manifest/validate.go refuses such pairs
"""

from topology.rule import Rule, build_loader_check

RULE = Rule("SYN009", "union-conflict", "error", __doc__, build_loader_check("SYN009"))
