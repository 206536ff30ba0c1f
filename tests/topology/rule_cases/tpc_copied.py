"""TPC409 to TPC420: what becomes of topics at the target."""

from __future__ import annotations

from tests.topology.rule_cases.example import FLOW, ORDERS, Case, clusters, topics

CASES: list[Case] = [
    (
        "compacted merge that is allowed",
        "TPC409",
        clusters(topics(ORDERS + "cleanup: compact"))
        + "defaults: {topics: {include: [orders]}, merge: {allowed: true, compacted: allow}}\n"
        "flows: [{source: a, target: c}, {source: b, target: c}]\n",
        [],
    ),
    (
        "compacted merge of patterns, of which one is known",
        "TPC409",
        clusters(topics("match: {glob: 'orders.*'}, cleanup: compact")) + "flows:\n"
        "  - {source: a, target: c, topics: {include: [{glob: 'orders.*'}]}}\n"
        "  - {source: b, target: c, topics: {include: [{glob: '*.paid'}]}}\n",
        ["`a-to-c` and `b-to-c` write the compacted `orders.*` at c"],
    ),
    (
        "other topics of the same flows",
        "TPC409",
        clusters(topics("match: {glob: 'orders.*'}, cleanup: compact")) + "flows:\n"
        "  - {source: a, target: c, topics: {include: [{glob: 'orders.*'}]}}\n"
        "  - {source: b, target: c, topics: {include: [{glob: 'stock.*'}]}}\n",
        [],
    ),
    (
        "cleanup unknown at one side",
        "TPC410",
        clusters(topics(ORDERS + "cleanup: compact"), topics(ORDERS + "partitions: 1"))
        + FLOW % ", sync: {configs: {mode: never}}",
        [],
    ),
    (
        "cleanup set to something else",
        "TPC410",
        clusters(topics(ORDERS + "cleanup: compact"))
        + FLOW % ', sync: {configs: {set: {cleanup.policy: "compact,delete"}}}',
        ["`orders`: compact at a, compact_delete at b"],
    ),
    (
        "fewer partitions, and keys need no partition of their own",
        "TPC411",
        clusters(topics(ORDERS + "partitions: 6"), topics(ORDERS + "partitions: 3"))
        + FLOW % ", partitions: {mapping: key}",
        ["`orders`: 3 partitions at b, 6 at a"],
    ),
    (
        "fewer partitions, with many topics",
        "TPC411",
        "flows:\n  - {source: a, target: b, topics: {include: [{glob: 'o*'}]}}\n--- # topology scan\n"
        "a: {topics: {o0: {partitions: 2}, o1: {partitions: 2}, o2: {partitions: 2}, o3: {partitions: 2}}}\n"
        "b: {topics: {o0: {partitions: 1}, o1: {partitions: 1}, o2: {partitions: 1}, o3: {partitions: 1}}}\n",
        ["`o0`, `o1` and 2 more: 1 partition at b, 2 at a"],
    ),
    (
        "more partitions, and nobody will write there",
        "TPC412",
        clusters(topics(ORDERS + "partitions: 6, keyed: true"), topics(ORDERS + "partitions: 12")) + FLOW % "",
        [],
    ),
    (
        "more partitions of a topic that a migration moves",
        "TPC412",
        clusters(topics(ORDERS + "partitions: 6, cleanup: compact"), topics(ORDERS + "partitions: 12"))
        + FLOW % ""
        + "migration:\n  flow: a-to-b\n  waves:\n    - {name: all, topics: [orders], producers: [checkout]}\n",
        ["keyed `orders`: 6 partitions at a, 12 at b"],
    ),
    (
        "more partitions, and a way back under the same name",
        "TPC412",
        clusters(
            topics("match: {glob: 'o*'}, partitions: 6, keyed: true"), topics("match: {glob: 'o*'}, partitions: 9")
        )
        + "defaults: {topics: {include: [{glob: 'o*'}]}}\n"
        "flows: [{source: a, target: b}, {source: b, target: a, state: paused}]\n",
        ["keyed `o*`: 6 partitions at a, 9 at b"],
    ),
    (
        "more partitions, and a way back for other topics",
        "TPC412",
        clusters(topics(ORDERS + "partitions: 6, keyed: true"), topics(ORDERS + "partitions: 9"))
        + FLOW % ""
        + "  - {source: b, target: a, topics: {include: [catalogue]}}\n",
        [],
    ),
    (
        "merged with any partition count",
        "TPC413",
        clusters(topics(ORDERS + "partitions: 6"), topics(ORDERS + "partitions: 12"))
        + "defaults: {topics: {include: [orders]}, merge: {allowed: true, partitions: any}}\n"
        "flows: [{source: a, target: c}, {source: b, target: c}]\n",
        [],
    ),
    (
        "prefixes keep the sources apart",
        "TPC413",
        clusters(topics(ORDERS + "partitions: 6"), topics(ORDERS + "partitions: 12"))
        + "defaults: {topics: {include: [orders]}, naming: {policy: prefix}}\n"
        "flows: [{source: a, target: c}, {source: b, target: c}]\n",
        [],
    ),
    (
        "a topic's limit against the target's brokers, when configs are not taken over",
        "TPC414",
        clusters(topics(ORDERS + "max_message: 4MiB"), "facts: {max_message: 1MiB}")
        + FLOW % ", sync: {configs: {mode: never}}",
        ["a takes messages of 4MiB in `orders`, b only 1MiB"],
    ),
    (
        "a topic's limit is taken over",
        "TPC414",
        clusters(topics(ORDERS + "max_message: 4MiB"), "facts: {max_message: 1MiB}") + FLOW % "",
        [],
    ),
    (
        "an inherited limit is taken over, too",
        "TPC414",
        FLOW % ""
        + '--- # topology scan\na: {topics: {orders: {configs: {max.message.bytes: "4000000"}}}}\n'
        + 'b: {configs: {message.max.bytes: "1048588"}}\n',
        [],
    ),
    (
        "an inherited limit, and configs are not taken over",
        "TPC414",
        FLOW % ", sync: {configs: {mode: never}}"
        + '--- # topology scan\na: {topics: {orders: {configs: {max.message.bytes: "4000000"}}}}\n'
        + 'b: {configs: {message.max.bytes: "1048588"}}\n',
        ["a takes messages of 4MB in `orders`, b only 1048588B"],
    ),
    (
        "a topic that is there keeps its limit",
        "TPC414",
        FLOW % ""
        + '--- # topology scan\na: {topics: {orders: {configs: {max.message.bytes: "4000000"}}}}\n'
        + 'b: {topics: {orders: {configs: {max.message.bytes: "1048588"}}}}\n',
        ["a takes messages of 4MB in `orders`, b only 1048588B"],
    ),
    (
        "brokers only, and the flow takes limits over",
        "TPC414",
        clusters("facts: {max_message: 4MiB}", "facts: {max_message: 1MiB}") + FLOW % "",
        [],
    ),
    (
        "brokers only, and the flow leaves limits out",
        "TPC414",
        clusters("facts: {max_message: 4MiB}", "facts: {max_message: 1MiB}")
        + FLOW % ", sync: {configs: {mode: once, exclude: [max.message.bytes]}}",
        ["brokers of a take messages of 4MiB, those of b only 1MiB"],
    ),
    (
        "brokers only, and a value set",
        "TPC414",
        clusters("facts: {max_message: 4MiB}", "facts: {max_message: 1MiB}")
        + FLOW % ', sync: {configs: {set: {max.message.bytes: "4194304"}}}',
        [],
    ),
    ("the same limit", "TPC414", clusters("facts: {max_message: 1MiB}", "facts: {max_message: 1MiB}") + FLOW % "", []),
    (
        "the brokers' default stamps new topics, and the flow sets their type",
        "TPC415",
        FLOW % ", sync: {configs: {mode: never}}"
        + "--- # topology scan\nb: {configs: {log.message.timestamp.type: LogAppendTime}}\n",
        [],
    ),
    (
        "a topic that is there stamps",
        "TPC415",
        FLOW % ""
        + "--- # topology scan\nb: {configs: {log.message.timestamp.type: LogAppendTime}, "
        + "topics: {orders: {configs: {message.timestamp.type: LogAppendTime}}}}\n",
        ["b stamps `orders` with the time of arrival"],
    ),
    (
        "a topic that is there stamps as its brokers do, and configs are kept equal",
        "TPC415",
        FLOW % ", sync: {configs: {mode: continuous}}"
        + "--- # topology scan\nb: {configs: {log.message.timestamp.type: LogAppendTime}, "
        + "topics: {orders: {configs: {message.timestamp.type: LogAppendTime}}}}\n",
        [],
    ),
    (
        "the file asks for it",
        "TPC415",
        FLOW % ", sync: {configs: {set: {message.timestamp.type: LogAppendTime}}}",
        ["b stamps `orders` with the time of arrival"],
    ),
    (
        "only the source stamps",
        "TPC415",
        clusters(topics(ORDERS + "timestamps: log_append_time")) + FLOW % ", sync: {configs: {mode: continuous}}",
        [],
    ),
    (
        "listed, continuously",
        "TPC416",
        FLOW % ", sync: {configs: {mode: continuous, include: [remote.storage.enable]}}",
        ["keeps remote.storage.enable equal continuously"],
    ),
    (
        "set, and nobody knows what the target has",
        "TPC416",
        FLOW % ', sync: {configs: {set: {remote.storage.enable: "true"}}}',
        [],
    ),
    ("latest with names only", "TPC417", FLOW % ", delivery: {start: latest}", []),
    (
        "a target without a scan",
        "TPC418",
        FLOW % "" + '--- # topology scan\na: {configs: {auto.create.topics.enable: "true"}}\n',
        [],
    ),
    ("the same codec on both sides", "TPC420", clusters(*[topics(ORDERS + "compression: zstd")] * 2) + FLOW % "", []),
    *(
        (
            f"what workers pack with {codec}, where the target packs with zstd",
            "TPC420",
            clusters(topics(ORDERS + "compression: uncompressed"), topics(ORDERS + "compression: zstd"))
            + FLOW % f", compression: {codec}",
            told,
        )
        for codec, told in (("zstd", []), ("lz4", ["b packs `orders` anew, with zstd"]))
    ),
]
