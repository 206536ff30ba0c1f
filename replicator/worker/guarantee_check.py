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

from clusters.capabilities import BrokerAnswers, ask_brokers, combine_answers
from clusters.errors import Unreachable
from clusters.flow_records import FlowRecord
from clusters.settings import ConnectionSettings, SettingsLookup
from replicator.topic_mapping import HoldReason
from topology.cluster_capabilities import ClusterCapabilities
from topology.delivery_guarantee import GuaranteeDecision, decide_guarantee, explain_refusal

_ASKED_AGAIN_S: Final = 300.0
_REFUSED_AGAIN_S: Final = 30.0  # while a flow waits for a cluster to be upgraded


@dataclass(slots=True)
class GuaranteeCheck:
    """Remembers what each cluster can do; may be shared by threads. ask: replaced in tests."""

    target: ConnectionSettings
    connect: SettingsLookup
    ask: Callable[[ConnectionSettings], BrokerAnswers] = ask_brokers
    _known: dict[str, tuple[float, ClusterCapabilities]] = field(default_factory=dict)  # alias → until, what
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find_hold(self, record: FlowRecord) -> HoldReason | None:
        """Why nothing of this flow may be copied; None where both clusters can do what it needs.

        Raises ClusterError where a cluster does not answer that was never asked before, RequestRefused below 0.11.
        """
        decision = self._decide(record)
        if decision.is_executed:
            return None
        with self._lock:
            for each in decision.missing:
                until, known = self._known[each.cluster]
                self._known[each.cluster] = min(until, time.monotonic() + _REFUSED_AGAIN_S), known
        remedy = f"{decision.missing[0].remedy}. It is looked at again by itself"
        return HoldReason("unsupported", explain_refusal(record.key, "", decision), remedy)

    def _decide(self, record: FlowRecord) -> GuaranteeDecision:
        source = self._read(record.flow.source, lambda: self.connect(record.flow.source))
        target = self._read(record.flow.target, lambda: self.target)
        return decide_guarantee(record.flow.delivery, source, target)

    def _read(self, alias: str, settings: Callable[[], ConnectionSettings]) -> ClusterCapabilities:
        with self._lock:
            until, known = self._known.get(alias, (0.0, None))
        if known is not None and time.monotonic() < until:
            return known
        try:
            found = combine_answers(self.ask(settings()))
        except Unreachable:
            if known is None:
                raise
            found = known  # whoever connects to it tells that it does not answer
        with self._lock:
            self._known[alias] = time.monotonic() + _ASKED_AGAIN_S, found
        return found
