"""How patient and how strict one wave's migration is: the file's gates, and defaults for the rest. All times in ms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from watershed.topology.application_controls import UNDECLARED_APPLICATION
from watershed.topology.migration_waves import (
    ApprovalGate,
    ConsumerLagGate,
    HoldGate,
    HookGate,
    LagGate,
    PlanMigration,
    ProofGate,
    StragglersGate,
    Wave,
    WaveFence,
    WaveGate,
    WaveHooks,
    WaveStrategy,
    WaveWindow,
    list_producer_waves,
)

DEFAULT_SESSION_MS = 45_000  # session.timeout.ms since Kafka 3.0 (KIP-735), and group.consumer.session.timeout.ms
SESSION_GRACE_MS = 15_000
DEFAULT_APPLICATION_MS = 60_000


@dataclass(frozen=True, slots=True)
class WavePolicy:
    """max_lag: records over all partitions of the wave. watch_ms: how long the source must stand still; longer than
    the clients' metadata age (5 min by default) so that a producer that sleeps through the fence is seen.
    settle_ms: how long after the fence what was under way may still arrive.
    stranded: of a rollback, where groups go on that have passed records which somebody wrote at the old source: behind
    them or in front of them; None refuses.
    stall_ms: a flow that copies nothing for so long while records wait is refused instead of waited for.
    uncommitted: group → `earliest` | `latest` for partitions that it never committed; groups not named are refused.
    rebuild: Streams groups that may begin with empty state stores. redelivery: share groups that may get again what
    they are done with behind their start offsets. sessions_ms: group → session timeout of its static members, where it
    is not Kafka's default. after_ms: how long the source is watched for
    stragglers once producers write to the target. reverse: the flow that carries new records back, None without one.
    accept_loss: of a failover, so many offsets that are known to be missing are accepted beforehand (None: a person is
    shown them). though_source_answers: fail over although brokers of the source answer. unseen_ms: so long workers must
    not have seen it; longer than the 5 s after which an idle partition is reported again. persons: applications of the
    wave that a person stops and starts. application_ms: application → how long an order to it may be under way, where
    that is not `DEFAULT_APPLICATION_MS`. producer_waves: of a wave of late groups, the waves that have moved the
    producers of its topics. late_groups: groups that stay at the source when this wave moves its producers, and the
    wave that moves each later; of a failover, groups that it has to leave behind.
    """

    strategy: WaveStrategy = "consumers_first"
    fence: WaveFence = field(default_factory=WaveFence)
    hooks: WaveHooks = field(default_factory=WaveHooks)
    window: WaveWindow | None = None
    reverse: str | None = None
    hold_before_ms: int = 0
    hold_after_ms: int = 0
    checks_before: tuple[str, ...] = ()
    checks_after: tuple[str, ...] = ()
    after_ms: int = 0
    rebuild: frozenset[str] = frozenset()
    redelivery: frozenset[str] = frozenset()
    sessions_ms: Mapping[str, int] = field(default_factory=dict)
    accept_loss: int | None = None
    though_source_answers: bool = False
    unseen_ms: int = 7_000
    persons: frozenset[str] = frozenset()
    application_ms: Mapping[str, int] = field(default_factory=dict)
    producer_waves: tuple[str, ...] = ()
    late_groups: Mapping[str, str] = field(default_factory=dict)

    poll_ms: int = 1_000
    say_ms: int = 3_000
    reach_ms: int = 60_000
    stall_ms: int = 60_000
    max_lag: int = 1_000
    hold_ms: int = 3_000
    hold_times: int = 3
    lag_bound_ms: int = 30 * 60_000
    history_level: str = "L1"
    tail_level: str = "L1"
    approvals: tuple[str, ...] = ()
    empty_times: int = 3
    empty_bound_ms: int = 90_000
    copied_bound_ms: int = 120_000
    consumer_lag: int | None = None
    soak_bound_ms: int = 10 * 60_000
    soak_approvals: tuple[str, ...] = ()
    settle_ms: int = 3_000
    stranded: Literal["skip", "reread"] | None = None
    watch_ms: int = 6 * 60_000
    barrier_bound_ms: int = 60_000
    drain_bound_ms: int = 10 * 60_000
    canary_bound_ms: int = 60_000
    uncommitted: Mapping[str, str] = field(default_factory=dict)

    def find_application_bound_ms(self, name: str) -> int:
        """How long an order to stop or to start may be under way."""
        return self.application_ms.get(name, DEFAULT_APPLICATION_MS)

    def empty_ms(self, group: str, *, static: bool) -> int:
        """How long to wait for the group to be empty. A static member keeps its place for its session timeout after it
        has stopped, which brokers do not tell."""
        session_ms = self.sessions_ms.get(group, DEFAULT_SESSION_MS) if static else 0
        return max(self.empty_bound_ms, session_ms + SESSION_GRACE_MS)


def build_wave_policy(wave: Wave, migration: PlanMigration | None = None) -> WavePolicy:
    """The policy that a wave's gates declare, and the migration's `groups`; what they leave open has the defaults.

    `stragglers` before is the watch while nobody writes, after the one when producers are at the target; where only
    one stands in the file, it is the first.
    """
    groups = migration.groups if migration is not None else {}
    applications = migration.applications if migration is not None else {}
    names = (*wave.consumers, *wave.producers)
    policy = WavePolicy(
        strategy=wave.strategy,
        fence=wave.fence,
        hooks=wave.hooks,
        window=wave.window,
        reverse=wave.rollback.reverse if wave.rollback is not None else None,
        uncommitted={name: each.uncommitted for name, each in groups.items() if each.uncommitted is not None},
        rebuild=frozenset(name for name, each in groups.items() if each.state == "rebuild"),
        redelivery=frozenset(name for name, each in groups.items() if each.redelivery == "accept"),
        persons=frozenset(n for n in names if applications.get(n, UNDECLARED_APPLICATION).kind == "person"),
        application_ms={n: applications[n].bound_ms for n in names if n in applications},
        sessions_ms={n: each.session_timeout_ms for n, each in groups.items() if each.session_timeout_ms is not None},
    )
    if migration is not None and wave.is_late:
        names = tuple(each.name for each in list_producer_waves(wave, migration.waves))
        policy = replace(policy, producer_waves=names)
    elif migration is not None:
        policy = replace(policy, late_groups=migration.find_late_groups(wave))
    for gate in wave.gates_before:
        policy = _add_gate_before(policy, gate)
    watched_before = any(isinstance(each, StragglersGate) for each in wave.gates_before)
    for gate in wave.gates_after:
        policy = _add_gate_after(policy, gate, watched_before=watched_before)
    return policy


def _add_gate_before(policy: WavePolicy, gate: WaveGate) -> WavePolicy:
    match gate:
        case LagGate():
            bound = max(policy.lag_bound_ms, 3 * gate.hold_ms)
            return replace(policy, max_lag=gate.max_records, hold_ms=gate.hold_ms, lag_bound_ms=bound)
        case ProofGate():
            return replace(policy, history_level=gate.level)
        case ApprovalGate():
            return replace(policy, approvals=(*policy.approvals, gate.by))
        case StragglersGate():
            return replace(policy, watch_ms=gate.watch_ms)
        case HoldGate():
            return replace(policy, hold_before_ms=policy.hold_before_ms + gate.for_ms)
        case HookGate():
            return replace(policy, checks_before=(*policy.checks_before, gate.hook))
        case ConsumerLagGate():
            return policy  # it is about groups at the target, where nobody reads yet


def _add_gate_after(policy: WavePolicy, gate: WaveGate, *, watched_before: bool) -> WavePolicy:
    match gate:
        case StragglersGate() if watched_before:
            return replace(policy, after_ms=gate.watch_ms)
        case StragglersGate():
            return replace(policy, watch_ms=gate.watch_ms)
        case ProofGate():
            return replace(policy, tail_level=gate.level)
        case ConsumerLagGate():
            return replace(policy, consumer_lag=gate.max_records, soak_bound_ms=gate.within_ms)
        case ApprovalGate():
            return replace(policy, soak_approvals=(*policy.soak_approvals, gate.by))
        case HoldGate():
            return replace(policy, hold_after_ms=policy.hold_after_ms + gate.for_ms)
        case HookGate():
            return replace(policy, checks_after=(*policy.checks_after, gate.hook))
        case LagGate():
            return policy
