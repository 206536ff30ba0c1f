"""A topology's journal on its cluster, as those open it who decide by it: with the key that the file refers to."""

from __future__ import annotations

from watershed.clusters.settings import ConnectionSettings
from watershed.cutover.journal.hash_chain import Journal, JournalChain
from watershed.cutover.journal.journal_topic import JournalTopicLog
from watershed.cutover.journal.signing import read_signing_keys
from watershed.topology.plan import Plan


def open_journal(plan: Plan, settings: ConnectionSettings, holder: str) -> Journal:
    """settings: of the cluster on which it is. Raises SecretMissing."""
    return Journal(JournalTopicLog(settings), plan.topology, holder, signing=read_signing_keys(plan))


def read_journal_chain(plan: Plan, settings: ConnectionSettings) -> JournalChain:
    """As it is now. Raises SecretMissing, UnsignedHistory, BrokenChain and ClusterError."""
    return open_journal(plan, settings, "a reader").refresh()
