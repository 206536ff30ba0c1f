"""A topology's journal on its cluster, as those open it who decide by it: with the key that the file refers to."""

from __future__ import annotations

from clusters.settings import ConnectionSettings
from cutover.journal.chain import Chain, Journal
from cutover.journal.signing import signing_of
from cutover.journal.topic import TopicLog
from topology.plan import Plan


def open_journal(plan: Plan, settings: ConnectionSettings, holder: str) -> Journal:
    """settings: of the cluster on which it is. Raises SecretMissing."""
    return Journal(TopicLog(settings), plan.topology, holder, signing=signing_of(plan))


def read_chain(plan: Plan, settings: ConnectionSettings) -> Chain:
    """As it is now. Raises SecretMissing, UnsignedHistory, BrokenChain and ClusterError."""
    return open_journal(plan, settings, "a reader").refresh()
