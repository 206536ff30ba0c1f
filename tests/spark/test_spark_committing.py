"""What a driver does when ending transactions goes wrong, without a cluster."""

from __future__ import annotations

import pytest

from watershed.clusters.errors import Unreachable
from watershed.clusters.settings import ConnectionSettings
from watershed.spark.datasource import driver_transaction_commit
from watershed.spark.datasource.driver_transaction_commit import TransactionIdentity, commit_job
from watershed.spark.datasource.task_transaction_append import OpenTaskTransaction
from watershed.spark.errors import NotAppended


@pytest.mark.parametrize("error", [NotAppended("stays open"), Unreachable("a does not answer", alias="a")])
def test_a_job_that_is_committed_does_not_fail_for_what_lost(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever sees it fail runs it again, and everything would be there twice."""
    committed: list[TransactionIdentity] = []

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(driver_transaction_commit, "_all_open", lambda *_: None)
    monkeypatch.setattr(driver_transaction_commit, "_commit", lambda _settings, whom: committed.extend(whom))
    monkeypatch.setattr(driver_transaction_commit, "abort_other_transactions", fails)
    commit_job(ConnectionSettings("a", ("127.0.0.1:1",)), "p-", [OpenTaskTransaction("p-0-1", 5, 0, 1, 3), None])
    assert committed == [("p-0-1", 5, 0)]
    assert str(error) in caplog.text
