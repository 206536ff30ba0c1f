"""Inputs from inputs: bytes, numbers, words and trees are changed, never with a clock or a state outside `Random`."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import yaml

from tests.fuzz.target import Target

LONGEST = 1 << 20  # bytes of an input
NASTY = (
    *("\u202e", "\u2066", "\ufeff", "\x00", "\x1b[2J", "\u2028", "\ud7ff", "é", "\U0001f600", "İ", "ß", "\u0130", "²"),
    *("..", "../../etc/passwd", "%00", "%2e", "${x}", "$(x)", "`x`", "';--", "<script>", "{{x}}", "{0}", "%s"),
    *("NaN", "Infinity", "-Infinity", "1e999", "1e-999", "0x10", "0o7", "1_0", "-0", "null", "true", "~", "---"),
    *("*", "a*" * 20, "(a+)+$", "[", "(?=", "\\", "&a *a", "!!python/object:x", "<<", "&", "#", "@", "|", ">"),
    *("9" * 20, "9" * 400, "-9223372036854775809", "18446744073709551616", "2147483648", "a" * 300, "a" * 70_000),
)
NUMBERS = (
    0,
    1,
    -1,
    127,
    128,
    255,
    256,
    32767,
    32768,
    65535,
    2**31 - 1,
    2**31,
    2**32 - 1,
    -(2**31),
    2**63 - 1,
    -(2**63),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, -0.0, 1e308, 2**31, 2**63, 2**64, 10**30, "", [], {}, [[]], [{}], {"": None}),
    *NASTY,
)


def mutated(target: Target, pool: Sequence[bytes], random: Random) -> bytes:
    """Another input, one to six changes away from one of the pool."""
    data, longest = random.choice(pool), min(target.longest, LONGEST)
    if target.tree and random.random() < 0.6:
        changed = _with_tree_changed(data, pool, target, random)
        if changed is not None:
            data = changed
            if random.random() < 0.8:
                return data[:longest]
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        data = random.choice(_CHANGES)(data, pool, target, random)[:longest]
    return data


def _flip(data: bytes, _pool: Sequence[bytes], _target: Target, random: Random) -> bytes:
    if not data:
        return bytes([random.randrange(256)])
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]


def _set(data: bytes, _pool: Sequence[bytes], _target: Target, random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + bytes([random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))]) + data[at + 1 :]


def _truncate(data: bytes, _pool: Sequence[bytes], _target: Target, random: Random) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _delete(data: bytes, _pool: Sequence[bytes], _target: Target, random: Random) -> bytes:
    start, end = _range(data, random)
    return data[:start] + data[end:]


def _repeat(data: bytes, _pool: Sequence[bytes], _target: Target, random: Random) -> bytes:
    start, end = _range(data, random)
    times = random.choice((2, 2, 3, 10, 100, 5000))
    return data[:start] + data[start:end] * min(times, LONGEST // max(end - start, 1)) + data[end:]


def _splice(data: bytes, pool: Sequence[bytes], _target: Target, random: Random) -> bytes:
    other = random.choice(pool)
    start, end = _range(other, random)
    at, until = _range(data, random)
    return data[:at] + other[start:end] + data[random.choice((at, until)) :]


def _number(data: bytes, _pool: Sequence[bytes], _target: Target, random: Random) -> bytes:
    """A length field, perhaps: a big-endian number of 1, 2, 4 or 8 bytes becomes an extreme, or a little other."""
    size = random.choice((1, 2, 4, 4, 4, 8))
    at = random.randrange(max(len(data) - size, 0) + 1)
    value = int.from_bytes(data[at : at + size], "big") + random.randrange(-3, 4)
    if random.random() < 0.6:
        value = random.choice((*NUMBERS, len(data), len(data) - at))
    return data[:at] + (value % (1 << 8 * size)).to_bytes(size, "big") + data[at + size :]


def _varint(data: bytes, _pool: Sequence[bytes], _target: Target, random: Random) -> bytes:
    value, out = random.choice(NUMBERS) % (1 << 64), bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    at = random.randrange(len(data) + 1)
    return data[:at] + bytes([*out, value]) + data[at + random.choice((0, 1)) :]


def _word(data: bytes, _pool: Sequence[bytes], target: Target, random: Random) -> bytes:
    word = random.choice((*target.words, *(each.encode() for each in NASTY)))
    at, end = _range(data, random)
    return data[:at] + word + data[random.choice((at, end)) :]


def _decimal(data: bytes, _pool: Sequence[bytes], _target: Target, random: Random) -> bytes:
    digits = [at for at, byte in enumerate(data[: 1 << 16]) if 48 <= byte <= 57]
    if not digits:
        return _word(data, _pool, _target, random)
    at = random.choice(digits)
    text = random.choice((str(random.choice(NUMBERS)), "9" * random.choice((5, 19, 20, 400, 5000)), "1e400", "-1", ""))
    return data[:at] + text.encode() + data[at + 1 :]


def _nest(data: bytes, _pool: Sequence[bytes], _target: Target, random: Random) -> bytes:
    opens, closes = random.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"(", b")"), (b"- ", b""), (b"\n  ", b"")))
    depth, at = random.choice((5, 60, 70, 1000, 20_000)), random.randrange(len(data) + 1)
    return data[:at] + opens * depth + b"1" + closes * depth + data[at:]


def _lines(data: bytes, _pool: Sequence[bytes], _target: Target, random: Random) -> bytes:
    lines = data.split(b"\n")
    one, other = random.randrange(len(lines)), random.randrange(len(lines))
    if random.random() < 0.5:
        lines[one], lines[other] = lines[other], lines[one]
    else:
        lines.insert(one, lines[other])
    return b"\n".join(lines)


_CHANGES = (_flip, _set, _truncate, _delete, _repeat, _splice, _number, _varint, _word, _word, _decimal, _nest, _lines)


def _range(data: bytes, random: Random) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(start + random.choice((1, 2, 4, 8, 16, 64, 256, len(data))), len(data))


def _with_tree_changed(data: bytes, pool: Sequence[bytes], target: Target, random: Random) -> bytes | None:
    """None where it is no tree."""
    tree = _tree_of(data, target.tree)
    if not isinstance(tree, dict | list):
        return None
    for _ in range(random.choice((1, 1, 2, 4))):
        _change_somewhere(tree, lambda: _tree_of(random.choice(pool), target.tree), random)
    try:
        if target.tree == "yaml" and not data.lstrip().startswith(b"{"):
            return yaml.safe_dump(tree, sort_keys=False, allow_unicode=random.random() < 0.5).encode()
        return json.dumps(tree, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    except (ValueError, TypeError, AttributeError, RecursionError, yaml.YAMLError):
        return None


def _tree_of(data: bytes, kind: str) -> Any:
    if len(data) > 20_000:
        return None
    try:
        return yaml.safe_load(data.decode()) if kind == "yaml" else json.loads(data)
    except (ValueError, RecursionError, TypeError, AttributeError, yaml.YAMLError):
        return None


def _change_somewhere(tree: Any, other: Callable[[], Any], random: Random) -> None:
    places = [(holder, key) for holder in _holders(tree) for key in _keys(holder)]
    if not places:
        return
    holder, key = random.choice(places)
    kind = random.randrange(8)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[random.choice((*NASTY, *holder, str(key) + "x"))] = holder.pop(key)
    elif kind == 2:
        holder[key] = [holder[key]] * random.choice((1, 2, 50))
    elif kind == 3:
        holder[key] = {random.choice(("a", "", "include", str(key))): holder[key]}
    elif kind == 4:
        there, at = random.choice(places)
        holder[key] = copy.deepcopy(there[at])
    elif kind == 5 and (found := list(_holders(other()))):
        taken = random.choice(found)
        holder[key] = taken[random.choice(_keys(taken))] if taken else taken
    else:
        holder[key] = random.choice((*VALUES, *NUMBERS))


def _holders(tree: Any) -> list[Any]:
    found, todo = [], [tree]
    while todo and len(found) < 3000:
        each = todo.pop()
        if isinstance(each, dict | list):
            found.append(each)
            todo.extend(each.values() if isinstance(each, dict) else each)
    return found


def _keys(holder: Any) -> list[Any]:
    return list(holder) if isinstance(holder, dict) else list(range(len(holder)))
