"""Questions about transactions that somebody else may have opened (KIP-664): which are open, and how one ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.list_transactions.v0.request import ListTransactionsRequest
from kio.schema.list_transactions.v0.response import ListTransactionsResponse
from kio.schema.types import TransactionalId

from clusters.wire import codes
from clusters.wire.connection import Connection
from clusters.wire.transaction_states import TransactionStates
from clusters.wire.transactions import ProducerIdAndEpoch

ONGOING: Final = "Ongoing"
MOVES: Final = frozenset({codes.COORDINATOR_LOAD_IN_PROGRESS, codes.COORDINATOR_NOT_AVAILABLE})
COMMITTED: Final = frozenset({"PrepareCommit", "CompleteCommit"})  # a prepared one can only be completed


class Described(NamedTuple):
    """state: as TransactionState.java spells it."""

    state: str
    producer: ProducerIdAndEpoch


def ongoing(broker: Connection) -> tuple[int, list[str]]:
    """(error, transactional ids) of the open transactions that this broker coordinates, as far as we may see them."""
    answer = broker.ask(ListTransactionsRequest(state_filters=(ONGOING,)), ListTransactionsResponse)
    return int(answer.error_code), [str(each.transactional_id) for each in answer.transaction_states]


def described(broker: Connection, ids: Iterable[str]) -> dict[str, tuple[int, Described]]:
    """id → (error, state). NOT_COORDINATOR: another broker knows; TRANSACTIONAL_ID_NOT_FOUND (105): nobody does."""
    question = DescribeTransactionsRequest(transactional_ids=tuple(TransactionalId(each) for each in ids))
    answer = broker.ask(question, TransactionStates)
    return {
        str(each.transactional_id): (
            int(each.error_code),
            Described(
                str(each.transaction_state),
                ProducerIdAndEpoch(int(each.producer_id), int(each.producer_epoch)),
            ),
        )
        for each in answer.transaction_states
    }
