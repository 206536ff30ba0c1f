"""How patient and how strict one wave's migration is: the file's gates, and defaults for the rest. All times in ms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from topology.plan import Approval, ConsumerLag, Lag, Stragglers, Verify, Wave


@dataclass(frozen=True, slots=True)
class Policy:
    """max_lag: records over all partitions of the wave. watch_ms: how long the source must stand still; longer than
    the clients' metadata age (5 min by default) so that a producer that sleeps through the fence is seen (design 05).
    stall_ms: a flow that copies nothing for so long while records wait is refused instead of waited for.
    uncommitted: group → `earliest` | `latest` for partitions that it never committed; groups not named are refused.
    """

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
    watch_ms: int = 6 * 60_000
    barrier_bound_ms: int = 60_000
    drain_bound_ms: int = 10 * 60_000
    canary_bound_ms: int = 60_000
    uncommitted: Mapping[str, str] = field(default_factory=dict)


def policy_of(wave: Wave) -> Policy:
    """The policy that a wave's gates declare; what they leave open has the defaults above."""
    policy = Policy()
    for gate in wave.gates_before:
        match gate:
            case Lag():
                bound = max(policy.lag_bound_ms, 3 * gate.hold_ms)
                policy = replace(policy, max_lag=gate.max_records, hold_ms=gate.hold_ms, lag_bound_ms=bound)
            case Verify():
                policy = replace(policy, history_level=gate.level)
            case Approval():
                policy = replace(policy, approvals=(*policy.approvals, gate.by))
            case Stragglers():
                policy = replace(policy, watch_ms=gate.watch_ms)
            case ConsumerLag():
                pass  # says something about the target's groups only
    for gate in wave.gates_after:
        match gate:
            case Stragglers():
                policy = replace(policy, watch_ms=gate.watch_ms)
            case Verify():
                policy = replace(policy, tail_level=gate.level)
            case ConsumerLag():
                policy = replace(policy, consumer_lag=gate.max_records, soak_bound_ms=gate.within_ms)
            case Approval():
                policy = replace(policy, soak_approvals=(*policy.soak_approvals, gate.by))
            case Lag():
                pass
    return policy
