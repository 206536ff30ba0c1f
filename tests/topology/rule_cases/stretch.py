"""SYN019, SYC526 and SYC527: stretch clusters, and readers in a rack."""

from __future__ import annotations

from tests.topology.rule_cases.example import Case

_METRO = """clusters:
  a:
    bootstrap: [k1.a.example.internal:9093]
    regions: [%s]
    stretch: {%s}
  b: {bootstrap: [k1.b.example.internal:9093]}
flows:
  - {source: a, target: b, topics: {include: [orders]}}
"""
_SCAN = "--- # topology scan\na: {brokers: 6, racks: [%s], topics: {orders: {replication_factor: 4, %s}}}\n"
_LAYOUT = "sync_replicas: {fra: 2, ams: 2}, tie_breaker: lux"
_OBSERVED = "sync_replicas: {fra: 2, ams: 2}, observers: [dub]"
_PLACED = "replica_racks: [[ams, ams, fra, fra]]"
_NEAR = "flows:\n  - {source: a, target: b, topics: {include: [orders]}, workers: {near: %s}}\n"


def _metro(regions: str, stretch: str) -> str:
    return _METRO % (regions, stretch)


CASES: list[Case] = [
    ("no regions", "SYN019", _metro("fra", _LAYOUT), ["`clusters.a.regions` does not say two regions"]),
    (
        "each key that names a region",
        "SYN019",
        _metro("fra, ams", "sync_replicas: {fra: 1, one: 1}, observers: [two], tie_breaker: three"),
        [
            "`clusters.a.stretch.sync_replicas` names `one`",
            "`clusters.a.stretch.observers` names `two`",
            "`clusters.a.stretch.tie_breaker` names `three`",
        ],
    ),
    (
        "a tie breaker with replicas",
        "SYN019",
        _metro("fra, ams, lux", "sync_replicas: {fra: 2, lux: 1}, observers: [lux], tie_breaker: lux"),
        ["`lux` only votes, and `sync_replicas`", "`lux` only votes, and `observers`"],
    ),
    ("no stretch at all", "SYN019", _metro("fra, ams", ""), []),
    ("a long way", "SYC526", _metro("fra, ams, lux", "max_rtt: 80ms"), ["round trips of up to 80ms"]),
    ("two regions", "SYC526", _metro("fra, ams", "max_rtt: 10ms"), ["has two regions and no third"]),
    (
        "brokers without racks",
        "SYC526",
        _metro("fra, ams, lux", _LAYOUT) + "--- # topology scan\na: {brokers: 2, topics: {orders: {}}}\n",
        ["no broker in `ams` and `fra`: its brokers name no racks", "1 replica, and `sync_replicas` places 4"],
    ),
    ("as laid out", "SYC526", _metro("fra, ams, lux", _LAYOUT) + _SCAN % ("fra, ams", _PLACED), []),
    (
        "racks that are called after regions",
        "SYC526",
        _metro("fra, ams, lux", _LAYOUT) + _SCAN % ("fra-1, ams-2", "replica_racks: [[ams-1, ams-2, fra-1, fra-2]]"),
        [],
    ),
    (
        "replicas elsewhere, also in the region that only votes",
        "SYC526",
        _metro("fra, ams, lux", _LAYOUT)
        + _SCAN % ("fra, ams, lux", "replica_racks: [[ams, fra, fra, lux], [ams, ams, fra, fra]]"),
        ["`orders` at a: 1 replica in ams, and 2 laid out", "`orders` at a: 1 replica in lux, and 0 laid out"],
    ),
    (
        "a write that one region acknowledges",
        "SYC526",
        _metro("fra, ams, lux", _LAYOUT) + _SCAN % ("fra, ams", f"{_PLACED}, configs: {{min.insync.replicas: '2'}}"),
        ["2 in sync suffice for a write, and one region has 2"],
    ),
    (
        "observers that brokers do not place",
        "SYC526",
        _metro("fra, ams, dub", _OBSERVED)
        + _SCAN % ("fra, ams, dub", "replica_racks: [[ams, ams, dub, fra, fra]], configs: {retention.ms: '1'}"),
        ["`orders` at a: no `confluent.placement.constraints`"],
    ),
    (
        "observers that are promoted by hand, and by themselves",
        "SYC526",
        _metro("fra, ams, dub", _OBSERVED)
        + "--- # topology scan\na:\n  brokers: 3\n  racks: [fra, ams, dub]\n  topics:\n"
        + "".join(
            f"    {name}:\n      replication_factor: 5\n      replica_racks: [[ams, ams, dub, fra, fra]]\n"
            f"      configs: {{confluent.placement.constraints: '{constraints}'}}\n"
            for name, constraints in (
                ("one", '{"version": 1, "observers": [{"count": 1}]}'),
                ("two", '{"version": 2, "observers": [{"count": 1}]}'),
                ("none", '{"version": 2}'),
                ("broken", "{"),
            )
        ),
        [
            "`broken` at a: `confluent.placement.constraints` is not JSON",
            "`none` at a: `confluent.placement.constraints` names no observers",
            "`one` at a: `confluent.placement.constraints` has version 1: observers are promoted by hand only",
        ],
    ),
    (
        "a rack that no broker names",
        "SYC527",
        _NEAR % "{rack: x}" + "--- # topology scan\na: {brokers: 2, racks: [r1, r2], topics: {orders: {}}}\n",
        ["readers of a stand in rack `x`, and its brokers name `r1` and `r2`"],
    ),
    (
        "brokers without racks",
        "SYC527",
        _NEAR % "{rack: x}" + "--- # topology scan\na: {brokers: 2, topics: {orders: {}}}\n",
        ["its brokers name no racks"],
    ),
    (
        "the rack of proofs, and a selector of leaders",
        "SYC527",
        "clusters:\n  a: {bootstrap: [k1.a.example.internal:9093], rack: r1}\n"
        "  b: {bootstrap: [k1.b.example.internal:9093]}\n"
        + _NEAR
        % "target"
        + "--- # topology scan\na:\n  brokers: 2\n  racks: [r1, r2]\n"
        "  configs: {replica.selector.class: x.LeaderSelector}\n",
        ["its brokers have `replica.selector.class` x.LeaderSelector"],
    ),
    (
        "configs that the scan did not see",
        "SYC527",
        _NEAR % "{rack: r1}" + "--- # topology scan\na: {brokers: 2, racks: [r1, r2], topics: {orders: {}}}\n",
        [],
    ),
]
