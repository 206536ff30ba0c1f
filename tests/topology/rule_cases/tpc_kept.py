"""TPC401 to TPC408: what is selected, how it is replicated and kept."""

from __future__ import annotations

from tests.topology.rule_cases.example import FLOW, ORDERS, SLO, Case, clusters, topics

CASES: list[Case] = [
    (
        "a literal internal name without allow_internal is not copied",
        "TPC401",
        "flows:\n  - {source: a, target: b, topics: {include: [orders, _schemas]}}\n",
        ["names `_schemas`: internal, and therefore not copied"],
    ),
    (
        "what another tool calls internal, taken by a pattern that a scan shows",
        "TPC401",
        "flows:\n  - {source: a, target: b, topics: {include: [{glob: '*'}]}}\n"
        "--- # topology scan\na: {topics: {_confluent-command: {}, orders: {}, connect-offsets: {}}}\n",
        ["copies `_confluent-command` (internal state of a Confluent component)"],
    ),
    (
        "a glob that takes nothing but internal names",
        "TPC401",
        "flows:\n  - {source: a, target: b, topics: {include: [{glob: '*.internal'}]}}\n",
        ["copies `*.internal` (configuration, positions or status of connectors)"],
    ),
    (
        "the same glob, excluded again",
        "TPC401",
        "flows:\n  - source: a\n    target: b\n"
        "    topics: {include: [orders, {glob: '*.internal'}], exclude: [{glob: '*.internal'}]}\n",
        [],
    ),
    (
        "a backup under another name",
        "TPC401",
        "flows:\n  - source: a\n    target: b\n    topics: {include: [_schemas], allow_internal: true}\n"
        "    naming: {policy: prefix}\n",
        ["to b, as `a._schemas`"],
    ),
    (
        "topics of foreign-key joins, which patterns take",
        "TPC402",
        "flows:\n  - {source: a, target: b, topics: {include: [{glob: 'app*'}]}}\n--- # topology scan\n"
        "a: {topics: {app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-07-topic: {}, app-store-changelog: {}, app: {}}}\n",
        ["copies `app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-07-topic`"],
    ),
    (
        "a store that a wave moves with its application, and one that stays",
        "TPC402",
        "flows:\n  - source: a\n    target: b\n"
        "    topics: {include: [orders, app-x-changelog, app-y-changelog], allow_internal: true}\n"
        "migration:\n  flow: a-to-b\n  strategy: fenced\n  waves:\n"
        "    - {name: all, topics: [orders, app-x-changelog], consumers: [app], producers: [app]}\n",
        ["copies `app-y-changelog`"],
    ),
    (
        "stores that travel with an application, and one of another",
        "TPC402",
        "flows:\n  - source: a\n    target: b\n"
        "    topics: {include: [orders, app-x-changelog, other-y-changelog], allow_internal: true}\n"
        "    sync: {groups: {mode: continuous, streams: [app]}}\n",
        ["copies `other-y-changelog`"],
    ),
    ("as many replicas as brokers", "TPC403", clusters(b="facts: {brokers: 3}") + FLOW % ", replication_factor: 3", []),
    ("brokers unknown", "TPC403", FLOW % ", replication_factor: 7", []),
    (
        "no factor said: the source's, as far as there are brokers",
        "TPC403",
        clusters(topics(ORDERS + "replication_factor: 5"), "facts: {brokers: 3}") + FLOW % "",
        [],
    ),
    (
        "a scan knows better than the file",
        "TPC403",
        clusters(b="facts: {brokers: 5}") + FLOW % ", replication_factor: 4" + "--- # topology scan\nb: {brokers: 3}\n",
        ["flow a-to-b asks for 4 replicas, but b has 3 brokers"],
    ),
    (
        "more replicas than racks",
        "TPC403",
        clusters(b="facts: {brokers: 6, racks: 2}") + FLOW % ", replication_factor: 3",
        ["3 replicas, but b has 2 racks"],
    ),
    (
        "declared for the target's topic",
        "TPC403",
        clusters(b="facts: {brokers: 2}, " + topics(ORDERS + "replication_factor: 3")) + FLOW % "",
        ["`orders` at b must have 3 replicas, but b has 2 brokers"],
    ),
    (
        "equal to the factor",
        "TPC404",
        clusters(b=topics(ORDERS + "replication_factor: 2, min_insync_replicas: 2")) + FLOW % "",
        ["2 of 2 replicas must be in sync; one broker down stops the flow"],
    ),
    (
        "one below the factor",
        "TPC404",
        clusters(b=topics(ORDERS + "replication_factor: 3, min_insync_replicas: 2")) + FLOW % "",
        [],
    ),
    (
        "one replica, one in sync: a single broker",
        "TPC404",
        clusters(b=topics(ORDERS + "replication_factor: 1, min_insync_replicas: 1")) + FLOW % "",
        [],
    ),
    (
        "the brokers' default counts for new topics",
        "TPC404",
        FLOW % ", replication_factor: 1" + '--- # topology scan\nb: {configs: {min.insync.replicas: "2"}}\n',
        ["`orders` at b: 2 of 1 replica must be in sync; every write is refused"],
    ),
    (
        "what a pattern will take, of which nothing is known",
        "TPC404",
        "flows:\n  - {source: a, target: b, topics: {include: [{glob: 'o*'}]}, replication_factor: 2,\n"
        '     sync: {configs: {set: {min.insync.replicas: "3"}}}}\n',
        ["what flow a-to-b creates at b: 3 of 2 replicas must be in sync; every write is refused"],
    ),
    (
        "the source's value is never taken over",
        "TPC404",
        clusters(topics(ORDERS + "replication_factor: 1, min_insync_replicas: 3"))
        + FLOW % ", sync: {configs: {mode: continuous}}",
        [],
    ),
    (
        "two brokers can have no more",
        "TPC405",
        clusters(b="facts: {brokers: 2}") + FLOW % ", replication_factor: 2",
        [],
    ),
    (
        "the source's factor is kept",
        "TPC405",
        clusters(topics(ORDERS + "replication_factor: 1"), "facts: {brokers: 3}") + FLOW % "",
        ["`orders` at b: 1 replica, on 3 brokers"],
    ),
    (
        "a topic that exists keeps its own",
        "TPC405",
        FLOW % ", replication_factor: 3"
        + "--- # topology scan\na: {topics: {orders: {}}}\n"
        + "b: {brokers: 3, topics: {orders: {replication_factor: 2}}}\n",
        ["`orders` at b: 2 replicas, on 3 brokers"],
    ),
    ("retention equals what is needed", "TPC406", clusters(topics(ORDERS + "retention: 24h")) + FLOW % SLO, []),
    (
        "a millisecond less",
        "TPC406",
        clusters(topics(ORDERS + "retention: 86399999ms")) + FLOW % SLO,
        ["a keeps `orders` for 86399999ms, but flow a-to-b needs 1d: 1h lag + 23h outage"],
    ),
    (
        "what is needed, as people say it",
        "TPC406",
        clusters(topics(ORDERS + "retention: 1d")) + FLOW % ", slo: {lag: {max: 5m}, outage_allowance: 48h}",
        ["a keeps `orders` for 1d, but flow a-to-b needs 49h: 5m lag + 2d outage"],
    ),
    ("retention unknown", "TPC406", clusters(topics(ORDERS + "partitions: 3")) + FLOW % SLO, []),
    ("nothing promised", "TPC406", clusters(topics(ORDERS + "retention: 1m")) + FLOW % "", []),
    (
        "compacted topics do not expire",
        "TPC406",
        clusters(topics(ORDERS + "retention: 1m, cleanup: compact")) + FLOW % SLO,
        [],
    ),
    (
        "compacted and deleted do",
        "TPC406",
        clusters(topics(ORDERS + "retention: 1m, cleanup: compact_delete")) + FLOW % SLO,
        ["for 1m"],
    ),
    (
        "time to catch up",
        "TPC406",
        clusters(topics(ORDERS + "retention: 2d"))
        + FLOW % (SLO + ", workers: {quota: 60MiB/s}, expected: {peak_ingress: 40MiB/s}"),
        ["needs 70h: 1h lag + 23h outage + 46h catching up"],
    ),
    (
        "a quota below the ingress is another rule's matter",
        "TPC406",
        clusters(topics(ORDERS + "retention: 24h"))
        + FLOW % (SLO + ", workers: {quota: 40MiB/s}, expected: {peak_ingress: 40MiB/s}"),
        [],
    ),
    (
        "a pattern's facts, for a flow with another pattern",
        "TPC406",
        clusters(topics("match: {glob: 'orders.*'}, retention: 1h", "match: {glob: 'other.*'}, retention: 1s"))
        + "flows:\n  - {source: a, target: b, topics: {include: [{regex: 'orders[.]paid.*'}]}"
        + SLO
        + "}\n",
        ["a keeps `orders.*` for 1h"],
    ),
    (
        "the scan overrides what is declared",
        "TPC406",
        clusters(topics(ORDERS + "retention: 1h"))
        + FLOW % SLO
        + '--- # topology scan\na: {topics: {orders: {configs: {retention.ms: "-1"}}}}\n',
        [],
    ),
    (
        "retention.bytes is full sooner",
        "TPC406",
        FLOW % SLO
        + "--- # topology scan\n"
        + 'a: {topics: {orders: {partitions: 2, rate_bytes: 1000, configs: {retention.bytes: "3600000"}}}}\n',
        ["a keeps `orders` for 2h"],
    ),
    (
        "a later hop reads what the first one took over",
        "TPC406",
        clusters(topics("match: {glob: 'orders.*'}, retention: 3d"))
        + "pattern: {chain: {path: [a, b, c], topics: {include: [{glob: 'orders.*'}]}}}\n"
        "flows:\n  - {source: b, target: c, slo: {outage_allowance: 7d}}\n",
        ["b keeps `orders.*` for 3d, but flow b-to-c needs 7d"],
    ),
    (
        "a later hop with a declared retention",
        "TPC406",
        clusters(topics(ORDERS + "retention: 3d"), topics(ORDERS + "retention: 14d"))
        + "pattern: {chain: {path: [a, b, c], topics: {include: [orders]}}}\n"
        "flows:\n  - {source: b, target: c, slo: {outage_allowance: 7d}}\n",
        [],
    ),
    (
        "both hops short of the same retention: said once",
        "TPC406",
        clusters(topics(ORDERS + "retention: 3d"))
        + "pattern: {chain: {path: [a, b, c], topics: {include: [orders]}, slo: {outage_allowance: 7d}}}\n",
        ["flow a-to-b needs 7d"],
    ),
    (
        "shorter by size",
        "TPC407",
        clusters(topics(ORDERS + "retention_bytes: 2GiB"), topics(ORDERS + "retention_bytes: 1GiB")) + FLOW % "",
        ["b keeps 1GiB a partition of `orders`, a 2GiB a partition"],
    ),
    (
        "longer at the target",
        "TPC407",
        clusters(topics(ORDERS + "retention: 1d"), topics(ORDERS + "retention: forever")) + FLOW % "",
        [],
    ),
    (
        "kept equal continuously",
        "TPC407",
        clusters(topics(ORDERS + "retention: 7d"), topics(ORDERS + "retention: 1d"))
        + FLOW % ", sync: {configs: {mode: continuous}}",
        [],
    ),
    (
        "set shorter",
        "TPC407",
        clusters(topics(ORDERS + "retention: 7d")) + FLOW % ', sync: {configs: {set: {retention.ms: "86400000"}}}',
        ["b keeps 1d of `orders`, a 7d"],
    ),
    (
        "tombstones of a topic that is not compacted",
        "TPC408",
        clusters(topics(ORDERS + "cleanup: delete, delete_retention: 1m")) + FLOW % SLO,
        [],
    ),
    (
        "tombstones kept just long enough",
        "TPC408",
        clusters(topics(ORDERS + "cleanup: compact_delete, delete_retention: 24h")) + FLOW % SLO,
        [],
    ),
]
