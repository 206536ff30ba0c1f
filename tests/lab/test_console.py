"""What Kafka's console consumers print is read as records."""

from __future__ import annotations

import pytest

from watershed.lab.console_consumer import PrintedRecord, parse_printed_record
from watershed.lab.errors import LabError


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "CreateTime:1795289\tPartition:1\tOffset:5000000000\tn:5,empty:<null>\tkey-1\t{\"n\": 5}",
            PrintedRecord(1, 5_000_000_000, 1_795_289, (("n", b"5"), ("empty", None)), b"key-1", b'{"n": 5}'),
        ),
        ("LogAppendTime:7\tPartition:0\tOffset:0\tNO_HEADERS\t<null>\t<null>", PrintedRecord(0, 0, 7, (), None, None)),
        ("CreateTime:7\tPartition:0\tOffset:0\tNO_HEADERS\t\t", PrintedRecord(0, 0, 7, (), b"", b"")),
    ],
    ids=["headers", "nulls", "empty"],
)  # fmt: skip
def test_a_line_is_a_record(line: str, expected: PrintedRecord) -> None:
    assert parse_printed_record(line) == expected


def test_another_order_of_fields_is_refused() -> None:
    with pytest.raises(LabError, match="printed 'Offset:1' where Partition: was expected"):
        parse_printed_record("CreateTime:7\tOffset:1\tPartition:0\tNO_HEADERS\tk\tv")
