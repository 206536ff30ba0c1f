"""Record batches as a broker's answer brings them: the worker's sifting and repacking, the reading of a proof.

The first byte of an input says whether checksums are made right after the mutation (odd: yes, or else nothing behind
the checksum would ever be read), and at which offset one reads. `clusters.record_batch.decode_batch_records` is not
here: it reads what tests have built. Oracles: of batches with right checksums, the worker passes on none with a wrong
one; small batches that are merged at once become what they become one by one.
"""

from __future__ import annotations

import struct

from tests.fuzz.target import OracleViolated, Target
from tests.replicator.build import abort, commit, data, emptied, old_format, transactional, with_crc
from watershed.clusters.errors import ProtocolError
from watershed.clusters.record_batch import compute_batch_crc, decode_batch_header
from watershed.replicator.batch.batch_selection import select_batches
from watershed.replicator.batch.codecs import GZIP, NONE, SNAPPY, compress_payload
from watershed.replicator.batch.legacy_formats import decode_records_of_any_format
from watershed.replicator.batch.record_batch import decode_batches
from watershed.replicator.batch.records import decode_record_fields
from watershed.replicator.batch.repack import SHORTEST_SERIES, RepackTerms
from watershed.replicator.errors import ReplicatorError
from watershed.spark.fingerprint import fingerprint_slices, sum_fingerprints
from watershed.spark.reading.batch_decoding import CorruptBatch, OldMessageFormat, locate_records, split_checked_batches
from watershed.spark.reading.batch_digests import digest_batch

# pyarrow loses 4 KiB for each payload of lz4 or zstd that cannot be read, and a child tries 100,000 inputs. The first
# one lets it take what it takes in any case.
_CODECS = (SNAPPY, GZIP, NONE)
_SIZE, _MAGIC, _V2 = 12, 16, 61
# of a proof's own reader (its docstrings name them): who calls it makes one answer of them
_PROOF = (CorruptBatch, OldMessageFormat, ValueError, IndexError, OSError, EOFError)


def target() -> Target:
    logs = [
        *map(_packed, _CODECS),
        data(0, 3),
        data(0, 2) + data(2, 3) + data(5),
        data(2, offsets=(0, 2, 3)) + data(10, 2),
        data(0, 4, codec="gzip") + data(4, 1, codec="gzip"),
        transactional(0, 2, 7) + abort(2, 7) + transactional(3, 2, 7) + commit(5, 7),
        emptied(0, 3) + data(3, 2, producer_id=9),
        old_format(0, 0) + old_format(1, 1),
        data(0, 1, size=3000),
        b"".join(data(at) for at in range(SHORTEST_SERIES + 1)),
        b"".join(data(2 * at, 2, codec="gzip") for at in range(SHORTEST_SERIES + 1)),
    ]
    seeds = [bytes([first]) + log for log in logs for first in (0, 1, 5)]
    magics = (b"\x28\xb5\x2f\xfd", b"\x82SNAPPY\x00", b"\x1f\x8b\x08", b"\x04\x22\x4d\x18")
    words = [struct.pack(">i", 2**31 - 1), b"\xff\xff\xff\xff\x0f", *magics]
    return Target("batches", seeds, _attempt, (ReplicatorError, ProtocolError, *_PROOF[:2]), words, longest=1 << 18)


def _packed(codec: int) -> bytes:
    """A batch of this codec; the record part alone is packed."""
    plain = bytearray(data(0, 3, size=400))
    try:
        plain[_V2:] = compress_payload(codec, bytes(plain[_V2:]))
    except KeyError:
        return bytes(plain)
    plain[8:12] = struct.pack(">i", len(plain) - _SIZE)
    plain[22] = plain[22] & 0xF8 | codec
    return bytes(with_crc(bytes(plain)))


def _attempt(found: bytes) -> str:
    first = found[0] if found else 0
    right, position = first & 1, first >> 2
    log = _with_right_checksums(found[1:]) if right else found[1:]
    came, refused = [], None
    for part in (_sifted, _merged, _merged_at_once, _opened, _proved):
        try:
            came.append(part(log, position if right else 0))
        except (ReplicatorError, ProtocolError, CorruptBatch, OldMessageFormat) as error:
            if not str(error).strip():
                raise
            came.append(type(error).__name__)
            refused = error
    if refused is not None and all(name[:1].isupper() for name in came):
        raise refused
    return " ".join(came)


def _sifted(log: bytes, position: int) -> str:
    return _passed(log, position, RepackTerms(small=0))


def _merged(log: bytes, position: int) -> str:
    """As where the target takes no holes and small batches become large ones."""
    return _passed(log, position, RepackTerms(isolate=True, change=lambda: lambda record: record))


def _merged_at_once(log: bytes, position: int) -> str:
    """Oracle: one by one the same comes of it."""
    one_by_one, at_once = (
        select_batches(memoryview(log), position, terms=RepackTerms(takes_all_of=lambda _id, taken=taken: taken))
        for taken in (False, True)
    )
    refused = str(one_by_one.refused) != str(at_once.refused)
    if refused or one_by_one._replace(refused=None) != at_once._replace(refused=None):
        raise OracleViolated("batches that are taken at once become others than one by one")
    return f"at once {min(len(at_once.batches), 3)}"


def _passed(log: bytes, position: int, terms: RepackTerms) -> str:
    sifted = select_batches(memoryview(log), position, ((7, 3),), terms=terms)
    were_right = _are_right(log)
    for batch in sifted.batches:
        if (
            were_right
            and batch.data[_MAGIC] == 2
            and decode_batch_header(batch.data).crc != compute_batch_crc(batch.data)
        ):
            raise OracleViolated(f"the batch at {batch.base} is passed on with a wrong checksum")
    return f"sifted {min(len(sifted.batches), 3)} {sifted.holes} {bool(sifted.rejected)}"


def _opened(log: bytes, _position: int) -> str:
    count = 0
    for batch in decode_batches(memoryview(log)):
        for record in decode_records_of_any_format(batch):
            count += 1
            try:
                decode_record_fields(record.rest)
            except (IndexError, ValueError):  # its docstring says so, and callers expect it
                continue
    return f"opened {min(count, 3)}"


def _proved(log: bytes, _position: int) -> str:
    batches = list(split_checked_batches(memoryview(log)))
    for batch in batches:
        digest_batch(batch)
    full = [batch for batch in batches if not batch.control and batch.count > 0]
    if not full:
        return "proved 0"
    try:
        slices = locate_records(full)
    except _PROOF as error:
        raise error if isinstance(error, CorruptBatch) else CorruptBatch(0, str(error) or "-") from error
    sum_fingerprints(fingerprint_slices(slices))
    return "proved"


def _with_right_checksums(log: bytes) -> bytes:
    out, at = bytearray(log), 0
    while at + _V2 <= len(out):
        size = _SIZE + max(struct.unpack_from(">i", out, at + 8)[0], 0)
        if out[at + _MAGIC] == 2 and at + size <= len(out) and size >= _V2:
            out[at : at + size] = with_crc(bytes(out[at : at + size]))
        at += size
    return bytes(out)


def _are_right(log: bytes) -> bool:
    try:
        return all(
            batch.data[_MAGIC] != 2 or decode_batch_header(batch.data).crc == compute_batch_crc(batch.data)
            for batch in decode_batches(memoryview(log))
        )
    except (ReplicatorError, ProtocolError):
        return False
