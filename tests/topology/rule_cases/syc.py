"""SYC501 to SYC534: what is synchronised beside records."""

from __future__ import annotations

from tests.topology.rule_cases.example import FLOW, ORDERS, Case, clusters, topics

CONTINUOUS = ", sync: {groups: {mode: continuous}}"
PAIR = "defaults: {topics: {include: [orders]}, merge: {allowed: true}, %s}\nflows:\n"
EVERY = "sync: {groups: {mode: continuous}}"
BOTH = "  - {source: a, target: b}\n  - {source: b, target: a}\n"
MOVE = (
    "migration:\n  flow: a-to-b\n  waves:\n    - {name: all, topics: [orders], consumers: [billing],\n"
    '       producers: [web], rollback: {none: "the source goes away"}}\n'
)
DIRECT = (
    "pattern:\n  active_active: {via: direct, members: [a, b], topics: {include: [orders]}, naming: {policy: prefix},\n"
)
GLOB = FLOW.replace("[orders]", "[{glob: 'o*'}]")
ROUND = (
    "flows:\n  - {source: a, target: b, topics: {include: [o]}, sync: {%s}}\n"
    "  - {source: b, target: a, topics: {include: [p]}, sync: {%s}}\n"
)
SCAN = "--- # topology scan\n"
STATE = (
    "flows:\n  - {source: a, target: b, topics: {include: [%s], allow_internal: true}, %s"
    "sync: {groups: {streams: [app, app-eu], mode: continuous}}}\n"
)
REGISTRIES = [f'schema_registry: {{url: "https://{alias}.example.internal/"}}' for alias in "ab"]
READ = "a: {topics: {orders: {}}, groups: {billing: {offsets: {orders: {0: 7}}}}}\n"
ACL = "{principal: 'User:app', operation: READ, permission: %s, resource: TOPIC, name: %s, pattern: %s}"

CASES: list[Case] = [
    ("no sync of groups", "SYC501", FLOW % "" + MOVE, []),
    ("carried until it moves", "SYC501", FLOW % CONTINUOUS + MOVE, []),
    (
        "a group that has moved, and another one",
        "SYC501",
        FLOW % CONTINUOUS
        + MOVE
        + SCAN
        + "a: {topics: {orders: {}},\n"
        + "  groups: {billing: {offsets: {orders: {0: 7}}}, g: {offsets: {orders: {0: 7}}}}}\n"
        + "b: {topics: {orders: {}}, groups: {billing: {state: Stable, members: 2}, g: {state: Stable, members: 1}}}\n",
        ["flow a-to-b writes positions of `g`, in use at b"],
    ),
    (
        "a group with members at the target",
        "SYC501",
        FLOW % CONTINUOUS
        + (SCAN + READ)
        + "b: {topics: {orders: {}}, groups: {billing: {state: Stable, members: 2}, g: {state: Stable, members: 1}}}\n",
        ["flow a-to-b writes positions of `billing`, in use at b"],
    ),
    (
        "the group is empty there",
        "SYC501",
        FLOW % CONTINUOUS + (SCAN + READ) + "b: {topics: {orders: {}}, groups: {billing: {}}}\n",
        [],
    ),
    (
        "a group of that name that reads nothing of the flow",
        "SYC501",
        FLOW % CONTINUOUS
        + SCAN
        + "a: {topics: {orders: {}, rates: {}}, groups: {billing: {offsets: {rates: {0: 1}}}}}\n"
        + "b: {topics: {orders: {}}, groups: {billing: {state: Stable, members: 2}}}\n",
        [],
    ),
    (
        "active on all sides",
        "SYC501",
        DIRECT + "    sync: {groups: {mode: once, include: [{glob: 'bill*'}]}}}\n",
        ["flow a-to-b writes positions of `bill*`", "flow b-to-a writes positions of `bill*`"],
    ),
    (
        "both ways, continuously",
        "SYC502",
        PAIR % EVERY + BOTH,
        ["positions of every group"],
    ),
    ("both ways, once", "SYC502", PAIR % "sync: {groups: {mode: once}}" + BOTH, []),
    (
        "different groups",
        "SYC502",
        PAIR % EVERY
        + "  - {source: a, target: b, sync: {groups: {mode: continuous, include: [billing]}}}\n"
        + "  - {source: b, target: a, sync: {groups: {mode: continuous, include: [{glob: 'audit*'}]}}}\n",
        [],
    ),
    (
        "patterns that share a group",
        "SYC502",
        PAIR % EVERY
        + "  - {source: a, target: b, sync: {groups: {mode: continuous, include: [{glob: 'b*'}]}}}\n"
        + "  - {source: b, target: a, sync: {groups: {mode: continuous, include: [{glob: '*g'}]}}}\n",
        ["both write positions of group `bg` in `orders`"],
    ),
    (
        "excluded on the way back",
        "SYC502",
        PAIR % EVERY
        + "  - {source: a, target: b, sync: {groups: {mode: continuous, include: [billing]}}}\n"
        + "  - {source: b, target: a, sync: {groups: {mode: continuous, exclude: [billing]}}}\n",
        [],
    ),
    (
        "other topics on the way back",
        "SYC502",
        FLOW % CONTINUOUS + "  - {source: b, target: a, topics: {include: [rates]}" + CONTINUOUS + "}\n",
        [],
    ),
    (
        "a renamed group that does not get its name back",
        "SYC502",
        PAIR % "sync: {groups: {mode: once, rename: {web: shop}}}"
        + BOTH.replace("target: a}", "target: a, state: paused}"),
        ["a-to-b renames group `web` to `shop`, and b-to-a does not", "b-to-a renames group `web`"],
    ),
    (
        "a renamed group that gets its name back",
        "SYC502",
        PAIR % EVERY
        + "  - {source: a, target: b, sync: {groups: {mode: once, rename: {web: shop}}}}\n"
        + "  - {source: b, target: a, sync: {groups: {mode: once, rename: {shop: web}}}}\n",
        [],
    ),
    (
        "other names at the target",
        "SYC502",
        DIRECT + "    sync: {groups: {mode: continuous}}}\n",
        [],
    ),
    ("equal offsets, and nothing speaks against it", "SYC503", FLOW % (", offsets: aligned" + CONTINUOUS), []),
    ("equal offsets without positions", "SYC503", FLOW % ", offsets: aligned, merge: {allowed: true}", []),
    (
        "equal offsets of a migration, begun in the middle",
        "SYC503",
        FLOW % ", offsets: aligned, delivery: {start: latest}, partitions: {mapping: key}" + MOVE,
        ["but keys choose the partition at the target, and the copy begins in the middle"],
    ),
    (
        "a group of another topic stands anywhere",
        "SYC504",
        FLOW % "" + SCAN + "b: {topics: {rates: {}}, groups: {g: {offsets: {rates: {0: 5}}}}}\n",
        [],
    ),
    (
        "exactly at the end",
        "SYC504",
        FLOW % "" + SCAN + "b: {topics: {orders: {records_end: 9}}, groups: {g: {offsets: {orders: {0: 4, 1: 5}}}}}\n",
        [],
    ),
    (
        "one behind the end",
        "SYC504",
        FLOW % ""
        + SCAN
        + "b: {topics: {orders: {}}, groups: {g: {offsets: {orders: {1: 6}}, beyond: ['orders:1']}}}\n",
        ["group `g` at b stands behind the end of `orders`"],
    ),
    (
        "a second flow carries the other topic",
        "SYC505",
        FLOW % CONTINUOUS
        + "  - {source: a, target: b, suffix: more, topics: {include: [rates]}}\n"
        + SCAN
        + "a: {topics: {orders: {}, rates: {}},"
        + " groups: {g: {offsets: {orders: {0: 1}, rates: {0: 1}, app-repartition: {0: 1}}}}}\n",
        [],
    ),
    (
        "a group that is left out",
        "SYC505",
        FLOW % ", sync: {groups: {mode: once, exclude: [g]}}"
        + SCAN
        + "a: {topics: {orders: {}, rates: {}},"
        + " groups: {g: {offsets: {orders: {0: 1}, rates: {0: 1}}}}}\n",
        [],
    ),
    (
        "a scan shows tools at work",
        "SYC506",
        FLOW % CONTINUOUS
        + SCAN
        + "a: {topics: {orders: {}}, groups: {console-consumer-7: {offsets: {orders: {0: 1}}},"
        + " connect-sink: {offsets: {orders: {0: 1}}}, billing: {offsets: {orders: {0: 1}}}}}\n",
        ["synchronises `connect-sink` and `console-consumer-7`: groups of tools"],
    ),
    (
        "named and excluded again",
        "SYC506",
        FLOW % ", sync: {groups: {mode: once, include: [{glob: 'connect-*'}, g], exclude: [{glob: 'connect*'}]}}",
        [],
    ),
    (
        "the target's retention is unknown",
        "SYC507",
        FLOW % CONTINUOUS
        + SCAN
        + "a: {topics: {orders: {last_append_ms: 1}}, groups: {g: {offsets: {orders: {0: 1}},"
        + " lag: {orders: 0}}}}\nb: {}\n",
        [],
    ),
    (
        "a group that still has something to read",
        "SYC507",
        FLOW % CONTINUOUS
        + SCAN
        + "a: {topics: {orders: {last_append_ms: 1}}, groups: {g: {offsets: {orders: {0: 1}},"
        + ' lag: {orders: 5}}}}\nb: {configs: {offsets.retention.minutes: "10"}}\n',
        [],
    ),
    ("as often as promised", "SYC508", FLOW % (CONTINUOUS + ", slo: {rpo: 10s}"), []),
    (
        "the default is too rare",
        "SYC508",
        FLOW % (CONTINUOUS + ", slo: {lag: {max: 1m}, rpo: 5s}"),
        ["writes positions every 10s (the default), but `slo.rpo` promises 5s"],
    ),
    (
        "against the lag budget",
        "SYC508",
        FLOW % ", sync: {groups: {mode: continuous, interval: 2m}}, slo: {lag: {max: 1m}}",
        ["every 2m, but `slo.lag.max` promises 1m"],
    ),
    ("positions written once", "SYC508", FLOW % ", sync: {groups: {mode: once, interval: 2m}}, slo: {rpo: 1m}", []),
    (
        "kept equal and set",
        "SYC509",
        FLOW % ', sync: {configs: {mode: continuous, include: [retention.ms], set: {retention.ms: "1"}}}',
        ["keeps retention.ms equal to a and sets it at b"],
    ),
    (
        "taken over once",
        "SYC509",
        clusters(topics(ORDERS + "retention: 7d"), topics(ORDERS + "retention: 30d")) + FLOW % "",
        [],
    ),
    (
        "the file sets the target's value",
        "SYC509",
        clusters(topics(ORDERS + "retention: 7d"), topics(ORDERS + "retention: 30d"))
        + FLOW % ', sync: {configs: {mode: continuous, set: {retention.ms: "2592000000"}}}',
        [],
    ),
    (
        "keys that are never taken over",
        "SYC509",
        clusters(topics(ORDERS + "min_insync_replicas: 1"), topics(ORDERS + "min_insync_replicas: 2"))
        + FLOW % ", sync: {configs: {mode: continuous}}",
        [],
    ),
    (
        "set on both scanned topics",
        "SYC509",
        FLOW % ", sync: {configs: {mode: continuous}}"
        + SCAN
        + 'a: {topics: {orders: {configs: {segment.ms: "7"}, overridden: [segment.ms]}}}\n'
        'b: {topics: {orders: {configs: {segment.ms: "8"}, overridden: [segment.ms]}}}\n',
        ["keeps segment.ms equal to a, but b has a value of its own for `orders`"],
    ),
    (
        "the source only inherits its value",
        "SYC509",
        FLOW % ", sync: {configs: {mode: continuous}}" + SCAN + 'a: {topics: {orders: {configs: {segment.ms: "7"}}}}\n'
        'b: {topics: {orders: {configs: {segment.ms: "8"}, overridden: [segment.ms]}}}\n',
        [],
    ),
    (
        "listed, and nothing is taken over",
        "SYC510",
        FLOW % ", sync: {configs: {mode: never, include: [min.insync.replicas]}}",
        [],
    ),
    ("a value for the target", "SYC510", FLOW % ', sync: {configs: {set: {min.insync.replicas: "2"}}}', []),
    ("nobody will write there", "SYC511", FLOW % ", sync: {acls: {mode: once}}", []),
    (
        "a migration moves producers",
        "SYC511",
        FLOW % ", sync: {acls: {mode: once}}" + MOVE,
        ["without the right to write, but the migration moves producers to b"],
    ),
    (
        "a way back is declared, which itself is not looked at",
        "SYC511",
        "pattern:\n  active_standby: {active: a, standby: b, topics: {include: [orders]}, sync: {acls: {mode: once}},\n"
        "    failback: {reverse: declared_paused}}\n",
        ["flow a-to-b carries ACLs over without the right to write, but b-to-a is declared as the way back"],
    ),
    (
        "rights to write from the start",
        "SYC511",
        FLOW % ", sync: {acls: {mode: once, include_write: always}}, slo: {rto: 1h}",
        [],
    ),
    (
        "a prefix, and text behind the name",
        "SYC512",
        GLOB % ", naming: {policy: template, template: '{topic}.from.{source}'}, sync: {acls: {mode: once}}"
        + f"--- # topology scan\na: {{topics: {{orders: {{}}}}, acls: [{ACL % ('ALLOW', 'ord', 'PREFIXED')}]}}\n",
        ["1 ACL of a cannot be said exactly at b, and flow a-to-b does not carry it over: User:app READ topic ord*"],
    ),
    (
        "a denial, and an exact name",
        "SYC512",
        FLOW % ", naming: {policy: prefix}, sync: {acls: {mode: once}}"
        + SCAN
        + "a: {topics: {orders: {}}, acls: ["
        + f"{ACL % ('DENY', repr('*'), 'LITERAL')}, {ACL % ('ALLOW', 'orders', 'LITERAL')}]}}\n",
        [],
    ),
    (
        "the same names",
        "SYC512",
        FLOW % ", sync: {acls: {mode: once}}"
        + f"--- # topology scan\na: {{topics: {{orders: {{}}}}, acls: [{ACL % ('ALLOW', repr('*'), 'LITERAL')}]}}\n",
        [],
    ),
    (
        "one registry, written in two ways",
        "SYC513",
        clusters(REGISTRIES[0] + ", " + topics(ORDERS + "schema: avro"), REGISTRIES[0].replace("/}", "}")) + FLOW % "",
        [],
    ),
    (
        "no schema facts",
        "SYC513",
        clusters(*REGISTRIES) + FLOW % "",
        [],
    ),
    (
        "the target's registry is unknown",
        "SYC513",
        clusters(REGISTRIES[0] + ", " + topics(ORDERS + "schema: protobuf")) + FLOW % "",
        [],
    ),
    (
        "two registries",
        "SYC513",
        clusters(REGISTRIES[0] + ", " + topics(ORDERS + "schema: protobuf"), REGISTRIES[1]) + FLOW % "",
        ["the schema ids in `orders` are those of the registry of a; b has another one"],
    ),
    (
        "the first entry of a map",
        "SYC514",
        FLOW % ", naming: {policy: map, map: {orders: sales}}, sync: {schemas: {mode: once}}",
        ["`sales` looks for `sales-value`, and the schema is under `orders-value`"],
    ),
    ("names stay", "SYC514", FLOW % ", sync: {schemas: {mode: once}}", []),
    (
        "values of JSON Schema begin with an id, too",
        "SYC513",
        clusters(REGISTRIES[0] + ", " + topics(ORDERS + "schema: json"), REGISTRIES[1]) + FLOW % "",
        ["the schema ids in `orders` are those of the registry of a; b has another one"],
    ),
    (
        "one side without a registry",
        "SYC518",
        clusters(REGISTRIES[0]) + FLOW % ", sync: {schemas: {mode: once}}",
        ["flow a-to-b carries schemas over, and the file says no schema registry of b"],
    ),
    ("no schemas travel", "SYC518", FLOW % ", sync: {schemas: {mode: never}}", []),
    (
        "one registry for both, with another last letter",
        "SYC519",
        clusters(REGISTRIES[0], REGISTRIES[0].replace("internal/", "internal"))
        + FLOW % ", sync: {schemas: {mode: once}}",
        ["flow a-to-b carries schemas over, and a and b have one schema registry"],
    ),
    ("two registries", "SYC519", clusters(*REGISTRIES) + FLOW % ", sync: {schemas: {mode: once}}", []),
    (
        "one, and nothing is carried",
        "SYC519",
        clusters(*REGISTRIES[:1] * 2) + FLOW % ", sync: {schemas: {mode: never}}",
        [],
    ),
    (
        "one, and subjects follow new names",
        "SYC519",
        clusters(*REGISTRIES[:1] * 2)
        + FLOW % ", naming: {policy: prefix}, sync: {schemas: {mode: once, subjects: follow_topic}}",
        [],
    ),
    (
        "one, new names, and subjects stay",
        "SYC519",
        clusters(*REGISTRIES[:1] * 2) + FLOW % ", naming: {policy: prefix}, sync: {schemas: {mode: once}}",
        ["flow a-to-b carries schemas over, and a and b have one schema registry"],
    ),
    (
        "records opened by their schemas, and a registry of the target only",
        "SYC521",
        clusters("", REGISTRIES[1]) + FLOW % (", transform: {format: {key: avro}, where: 'partition > 1'}"),
        ["flow a-to-b opens records by their schemas, and the file says no schema registry of a"],
    ),
    (
        "records opened by their schemas, and the registry of the source",
        "SYC521",
        clusters(REGISTRIES[0], "") + FLOW % (", transform: {format: {value: avro}, where: 'partition > 1'}"),
        [],
    ),
    (
        "JSON, and no registry",
        "SYC521",
        FLOW % (", transform: {format: {value: json}, where: 'partition > 1'}"),
        [],
    ),
    (
        "another key for each record",
        "SYC522",
        FLOW % ", partitions: {mapping: key}, transform: {set: {key: 'md5(key)'}}",
        ["flow a-to-b changes keys, and each record keeps its partition"],
    ),
    (
        "a field of each key goes",
        "SYC522",
        FLOW % ", partitions: {mapping: key}, transform: {format: {key: json}, drop: [key.email]}",
        ["flow a-to-b changes keys, and each record keeps its partition"],
    ),
    (
        "keys are read only",
        "SYC522",
        FLOW % ", partitions: {mapping: key}, transform: {set: {headers.k: 'md5(key)'}}",
        [],
    ),
    ("both sides", "SYC518", clusters(*REGISTRIES) + FLOW % ", sync: {schemas: {mode: once}}", []),
    (
        "at least once, of transactions",
        "SYC515",
        clusters(topics(ORDERS + "transactional: true"))
        + FLOW % ", delivery: {semantics: at_least_once, isolation: read_uncommitted}",
        ["copies aborted records of `orders`, written in transactions"],
    ),
    (
        "at least once, of nobody knows what",
        "SYC515",
        FLOW % ", delivery: {semantics: at_least_once, isolation: read_uncommitted}",
        [],
    ),
    ("as often as the budget", "SYC516", FLOW % ", workers: {discovery: 1m}, slo: {lag: {max: 1m}}", []),
    (
        "the default against a tight p99",
        "SYC516",
        FLOW % ", slo: {lag: {p99: 2s}}",
        ["looks for new topics every 10s (the default), but promises a lag of 2s"],
    ),
    ("the p99 is not the budget where a max is said", "SYC516", FLOW % ", slo: {lag: {p99: 2s, max: 1m}}", []),
    (
        "each kind by itself, and only where both run",
        "SYC517",
        ROUND
        % ("quotas: {mode: continuous}, acls: {mode: once}", "quotas: {mode: continuous}, acls: {mode: continuous}"),
        ["a-to-b and b-to-a both keep client quotas equal, in opposite directions"],
    ),
    ("configs of other topics", "SYC517", ROUND % (("configs: {mode: continuous}",) * 2), []),
    (
        "configs of the same topics",
        "SYC517",
        "defaults: {merge: {allowed: true}}\n" + ROUND.replace("[p]", "[o]") % (("configs: {mode: continuous}",) * 2),
        ["a-to-b and b-to-a both keep topic configs equal, in opposite directions"],
    ),
    (
        "an application whose input and repartition topic stay behind",
        "SYC528",
        STATE % ("orders, app-x-changelog", "")
        + SCAN
        + "a: {topics: {orders: {}, rates: {}, app-x-changelog: {}, app-y-repartition: {}, app-eu-z-changelog: {}},\n"
        + "  groups: {app: {offsets: {orders: {0: 7}, rates: {0: 7}}}}}\n",
        [
            "flow a-to-b is to carry the state of app, and does not copy `app-y-repartition` and `rates`",
            "flow a-to-b is to carry the state of app-eu, and does not copy `app-eu-z-changelog`",
        ],
    ),
    ("a source that was not scanned", "SYC528", STATE % ("orders", "") + SCAN + "b: {topics: {orders: {}}}\n", []),
    (
        "an application under another id",
        "SYC529",
        STATE.replace("mode:", "rename: {app: other}, mode:") % ("orders, app-x-changelog", ""),
        ["flow a-to-b is to carry the state of app, and group app becomes other"],
    ),
    (
        "one topic of an application under another name",
        "SYC529",
        STATE % ("orders, app-x-changelog", "naming: {policy: map, map: {app-x-changelog: other}}, "),
        ["flow a-to-b is to carry the state of app, and a topic app-x-changelog becomes other"],
    ),
    ("other topics under other names", "SYC529", STATE % ("orders", "naming: {policy: map, map: {orders: o}}, "), []),
    (
        "a copy that ends, and positions that come once",
        "SYC530",
        STATE.replace("continuous", "once") % ("orders", "delivery: {end: latest}, "),
        [
            "flow a-to-b is to carry the state of app, and carries positions once only",
            "flow a-to-b is to carry the state of app, and the copy ends",
        ],
    ),
    ("an ordinary flow", "SYC530", FLOW % ", delivery: {start: latest}", []),
    (
        "two flows that copy one topic tell one position",
        "SYC531",
        "flows:\n  - {source: a, target: b, topics: {include: [o]}, compatibility: {source_group: lag}}\n"
        "  - {source: a, target: c, topics: {include: [{glob: 'o*'}]}, compatibility: {source_group: lag}}\n",
        ["flow a-to-c commits its own position under group `lag` at a, and flow a-to-b commits under it, too"],
    ),
    (
        "two flows with topics of their own",
        "SYC531",
        "flows:\n  - {source: a, target: b, topics: {include: [o]}, compatibility: {source_group: lag}}\n"
        "  - {source: a, target: c, topics: {include: [p]}, compatibility: {source_group: lag}}\n",
        [],
    ),
    (
        "a group that a wave moves",
        "SYC531",
        FLOW % ", compatibility: {source_group: billing}" + MOVE,
        ["and wave all moves that group"],
    ),
    (
        "a name that a group gets",
        "SYC531",
        FLOW % ", sync: {groups: {mode: once, rename: {billing: lag}}}, compatibility: {source_group: lag}",
        ["and flow a-to-b names it in `sync.groups.rename`"],
    ),
    (
        "an empty group",
        "SYC532",
        FLOW % ", compatibility: {source_group: billing}" + SCAN + READ,
        [],
    ),
    (
        "a header beside expressions",
        "SYC533",
        FLOW % ", provenance: {header: from}, transform: {where: 'partition = 1'}",
        ["flow a-to-b changes records, so it cannot write the header `from` beside that"],
    ),
    (
        "a header alone",
        "SYC533",
        FLOW % ", provenance: {header: from}",
        [],
    ),
    (
        "the mark of a tool",
        "SYC534",
        FLOW
        % ", provenance: {header: from}"
        + "external_flows:\n  - {name: mm, tool: mirrormaker2, source: b, target: a, topics: {include: [orders]}, "
        "naming: {policy: identity}, marks_with: from}\n",
        ["flow a-to-b writes the header `from`, which mm marks its records with"],
    ),
    (
        "Replicator's own header",
        "SYC534",
        FLOW % ", provenance: {header: __replicator_id}",
        ["which Replicator reads"],
    ),
]
