"""Questions about transactions that somebody else may have opened (KIP-664): which are open, and how one ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from watershed.clusters.wire import error_codes
from watershed.clusters.wire.connection import Connection
from watershed.clusters.wire.transaction_requests import REPLICATED_S, ProducerIdAndEpoch
from watershed.clusters.wire.versions import Api

ONGOING_STATE: Final = "Ongoing"
COORDINATOR_LOADING_CODES: Final = frozenset(
    {error_codes.COORDINATOR_LOAD_IN_PROGRESS, error_codes.COORDINATOR_NOT_AVAILABLE}
)
COMMITTED_STATES: Final = frozenset({"PrepareCommit", "CompleteCommit"})  # a prepared one can only be completed


class TransactionDescription(NamedTuple):
    """state: as TransactionState.java spells it."""

    state: str
    producer: ProducerIdAndEpoch


def list_open_transactions(broker: Connection) -> tuple[int, list[str]]:
    """(error, transactional ids) of the open transactions that this broker coordinates, as far as we may see them."""
    answer = broker.ask(
        Api.LIST_TRANSACTIONS, patience_s=REPLICATED_S, state_filters=(ONGOING_STATE,), producer_id_filters=()
    )
    return int(answer.error_code), [str(each.transactional_id) for each in answer.transaction_states]


def describe_transactions(broker: Connection, ids: Iterable[str]) -> dict[str, tuple[int, TransactionDescription]]:
    """id → (error, state). NOT_COORDINATOR: another broker knows; TRANSACTIONAL_ID_NOT_FOUND (105): nobody does."""
    answer = broker.ask(Api.DESCRIBE_TRANSACTIONS, patience_s=REPLICATED_S, transactional_ids=tuple(ids))
    return {
        str(each.transactional_id): (
            int(each.error_code),
            TransactionDescription(
                str(each.transaction_state),
                ProducerIdAndEpoch(int(each.producer_id), int(each.producer_epoch)),
            ),
        )
        for each in answer.transaction_states
    }
