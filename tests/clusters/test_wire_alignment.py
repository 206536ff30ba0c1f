"""Markers are encoded once and repeated: the very bytes that the generated schemas make of all of them."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.types import ProducerId, TopicName
from kio.schema.write_txn_markers.v1 import request, response
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from watershed.clusters.errors import ProtocolError
from watershed.clusters.wire.alignment_requests import MAX_MARKERS_PER_REQUEST, AlignmentRequests
from watershed.clusters.wire.transaction_requests import ProducerIdAndEpoch
from watershed.clusters.wire.versions import SUPPORT, Api


class Asked(AlignmentRequests):
    def __init__(self, answer: Any) -> None:
        self.sent: tuple[Api, bytes] | None = None
        self.answer = answer

    def ask(self, api_key: int, **_values: Any) -> Any:
        raise AssertionError(f"{Api(api_key).name} is not encoded once")

    def ask_encoded(self, api: Api, encode: Callable[[int], bytes], patience_s: float | None = None) -> Any:
        self.sent = api, encode(SUPPORT[api].highest)
        return self.answer


def answer(*codes: int) -> response.WriteTxnMarkersResponse:
    parts = tuple(
        response.WritableTxnMarkerPartitionResult(partition_index=i32(3), error_code=code)  # type: ignore[arg-type]
        for code in codes
    )
    topic = response.WritableTxnMarkerTopicResult(name=TopicName("orders"), partitions=parts)
    return response.WriteTxnMarkersResponse(
        markers=(response.WritableTxnMarkerResult(producer_id=ProducerId(7), topics=(topic,)),)
    )


@pytest.mark.parametrize("count", [1, 2, 126, 127, 300, MAX_MARKERS_PER_REQUEST])
def test_the_bytes_are_those_of_the_schema(count: int) -> None:
    wire = Asked(answer(0))
    assert wire.write_markers("orders", 3, ProducerIdAndEpoch(7, 2), count) == 0
    marker = request.WritableTxnMarker(
        producer_id=ProducerId(7),
        producer_epoch=i16(2),
        transaction_result=False,
        topics=(request.WritableTxnMarkerTopic(name=TopicName("orders"), partition_indexes=(i32(3),)),),
        coordinator_epoch=i32(0),
    )
    expected = io.BytesIO()
    entity_writer(request.WriteTxnMarkersRequest)(expected, request.WriteTxnMarkersRequest(markers=(marker,) * count))
    assert wire.sent == (Api.WRITE_TXN_MARKERS, expected.getvalue())


@pytest.mark.parametrize("count", [0, MAX_MARKERS_PER_REQUEST + 1])
def test_a_count_that_no_request_takes(count: int) -> None:
    with pytest.raises(ValueError, match="a request takes 1 to 10000"):
        Asked(answer(0)).write_markers("orders", 3, ProducerIdAndEpoch(7, 2), count)


def test_the_error_is_the_first_one_and_none_is_no_answer() -> None:
    assert Asked(answer(0, 47)).write_markers("orders", 3, ProducerIdAndEpoch(7, 2), 1) == 47
    with pytest.raises(ProtocolError, match="leaves out orders-3"):
        Asked(answer()).write_markers("orders", 3, ProducerIdAndEpoch(7, 2), 1)
