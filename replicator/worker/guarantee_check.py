"""Whether the clusters of a flow can still give what it was promised: asked by the worker, too.

`topology apply` refuses such a flow before anything is written. A record can be older than that check, or its clusters
may have changed since: a cluster was replaced, or its brokers went back to an older release.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from watershed.clusters.capabilities import BrokerAnswers, ask_brokers, combine_answers
from watershed.clusters.errors import ProtocolError, RequestRefused, RequestUnsupported, Unauthorised, Unreachable
from watershed.clusters.flow_records import FlowRecord
from watershed.clusters.settings import ConnectionSettings, SettingsLookup
from watershed.replicator.topic_mapping import HoldReason
from watershed.topology.cluster_capabilities import ClusterCapabilities
from watershed.topology.delivery_guarantee import AT_LEAST_ONCE, GuaranteeDecision, explain_refusal
from watershed.topology.repeat_obstacles import decide_flow_guarantee

_ASKED_AGAIN_S: Final = 300.0
_REFUSED_AGAIN_S: Final = 30.0  # while a flow waits for a cluster to be upgraded
_AGAIN: Final = "The workers ask again by themselves"
_Known = ClusterCapabilities | RequestUnsupported  # the latter: its brokers are too old even to be asked


@dataclass(slots=True)
class GuaranteeCheck:
    """Remembers what each cluster can do; may be shared by threads. ask: replaced in tests."""

    target: ConnectionSettings
    connect: SettingsLookup
    ask: Callable[[ConnectionSettings], BrokerAnswers] = ask_brokers
    _known: dict[str, tuple[float, _Known]] = field(default_factory=dict)  # alias → until, what
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find_hold(self, record: FlowRecord) -> HoldReason | None:
        """Why nothing of this flow may be copied; None where both clusters can do what it needs.

        Raises ClusterError where a cluster that was never asked before does not answer.
        """
        source = self._read(record.flow.source, lambda: self.connect(record.flow.source))
        target = self._read(record.flow.target, lambda: self.target)
        if isinstance(source, RequestUnsupported):
            return _build_too_old(record, record.flow.source, source)
        if isinstance(target, RequestUnsupported):
            return _build_too_old(record, record.flow.target, target)
        decision = decide_flow_guarantee(record.flow, source, target)
        if _is_as_applied(record, decision):
            return None
        if decision.is_executed:
            return _build_applied_otherwise(record, decision)
        with self._lock:
            for each in decision.missing:
                until, known = self._known[each.cluster]
                self._known[each.cluster] = min(until, time.monotonic() + _REFUSED_AGAIN_S), known
        error = explain_refusal(record.key, "", decision, has_remedy=False)
        return HoldReason("unsupported", error, f"{decision.missing[0].remedy}. {_AGAIN}")

    def _read(self, alias: str, settings: Callable[[], ConnectionSettings]) -> _Known:
        with self._lock:
            until, known = self._known.get(alias, (0.0, None))
        if known is not None and time.monotonic() < until:
            return known
        found: _Known
        try:
            found = combine_answers(self.ask(settings()))
        except RequestUnsupported as error:
            found = error.with_traceback(None)
        except (Unreachable, Unauthorised, RequestRefused, ProtocolError):
            if known is None:
                raise
            found = known  # whoever connects to it tells that it does not answer
        again_s = _REFUSED_AGAIN_S if isinstance(found, RequestUnsupported) else _ASKED_AGAIN_S
        with self._lock:
            self._known[alias] = time.monotonic() + again_s, found
        return found


def _is_as_applied(record: FlowRecord, decision: GuaranteeDecision) -> bool:
    """Whether the flow can be copied the way that its record says. With `at_least_once, proven` it stays at that, also
    where its clusters can give more by now."""
    return decision.is_executed and (record.guarantee == AT_LEAST_ONCE or decision.guarantee != AT_LEAST_ONCE)


def _build_applied_otherwise(record: FlowRecord, decision: GuaranteeDecision) -> HoldReason:
    error = (
        f"flow {record.key} was applied with `{record.guarantee or 'exactly_once'}`, and its clusters give "
        f"`{decision.guarantee}` now"
    )
    return HoldReason("unsupported", error, f"Run `topology apply` again, or bring the target back. {_AGAIN}")


def _build_too_old(record: FlowRecord, alias: str, error: RequestUnsupported) -> HoldReason:
    wanted = f"Upgrade {alias} to Kafka {error.release} or newer" if error.release else f"Upgrade {alias}, or Watershed"
    return HoldReason("unsupported", f"flow {record.key} cannot be copied: {error}.", f"{wanted}. {_AGAIN}")
