"""Whether a frozen record holds what its fields declare: JSON gives lists where text is meant without a word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

_T = TypeVar("_T")
_Check = Callable[[Any], str]  # "" or what is there instead
_PLAIN_KINDS = frozenset({str, int, float, bool, bytes, NoneType})


def require_types(record: _T) -> _T:
    """The record itself. Raises TypeError, which names the first field that holds something else than it declares."""
    if is_dataclass(record):
        kind: Any = type(record)
        wrong = _check_of(kind)(record)
        if wrong:
            raise TypeError(wrong)
    return record


@lru_cache(maxsize=1_000)
def _check_of(declared: Any) -> _Check:
    if declared is Any:
        return _anything
    if isinstance(declared, type) and is_dataclass(declared):
        return _fields_check(declared)
    if isinstance(declared, type) and issubclass(declared, tuple) and hasattr(declared, "_fields"):
        return _named_check(declared)
    origin, arguments = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        return _union_check(declared, arguments)
    if origin is Literal:
        return lambda value: "" if isinstance(value, str | int) and value in arguments else _instead(value, declared)
    if origin is tuple:
        return _tuple_check(declared, arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping_check(declared, *map(_check_of, arguments))
    if isinstance(origin, type) and issubclass(origin, Sequence | AbstractSet):
        return _each_check(declared, origin, _check_of(arguments[0]))
    if declared is float:
        return _kind_check(declared, (int, float))
    return _kind_check(declared, (declared,), declared is bool)


def _anything(_value: Any) -> str:
    return ""


def _fields_check(declared: Any) -> _Check:
    hints = get_type_hints(declared)
    checks = [(field.name, _check_of(hints[field.name])) for field in fields(declared) if field.init]

    def check(value: Any) -> str:
        if not isinstance(value, declared):
            return _instead(value, declared)
        for name, check_one in checks:
            if found := check_one(getattr(value, name)):
                return f"{name}: {found}"
        return ""

    return check


def _named_check(declared: Any) -> _Check:
    hints = get_type_hints(declared)
    checks = [_check_of(hints[name]) for name in declared._fields]

    def check(value: Any) -> str:
        if not isinstance(value, declared):
            return _instead(value, declared)
        return next(filter(None, (check(each) for check, each in zip(checks, value, strict=True))), "")

    return check


def _union_check(declared: Any, arguments: Iterable[Any]) -> _Check:
    if set(arguments) <= _PLAIN_KINDS:
        return _kind_check(declared, tuple(arguments) + ((int,) if float in arguments else ()), bool in arguments)
    checks = [_check_of(each) for each in arguments]
    return lambda value: "" if any(not check(value) for check in checks) else _instead(value, declared)


def _tuple_check(declared: Any, arguments: tuple[Any, ...]) -> _Check:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return _each_check(declared, tuple, _check_of(arguments[0]))
    checks = [_check_of(each) for each in arguments]

    def check(value: Any) -> str:
        if not isinstance(value, tuple) or len(value) != len(checks):
            return _instead(value, declared)
        return next(filter(None, (check(each) for check, each in zip(checks, value, strict=True))), "")

    return check


def _mapping_check(declared: Any, key: _Check, content: _Check) -> _Check:
    def check(value: Any) -> str:
        if not isinstance(value, Mapping):
            return _instead(value, declared)
        return next((wrong for each in value.items() if (wrong := key(each[0]) or content(each[1]))), "")

    return check


def _each_check(declared: Any, kind: Any, one: _Check) -> _Check:
    def check(value: Any) -> str:
        if not isinstance(value, kind) or isinstance(value, str):
            return _instead(value, declared)
        return next(filter(None, map(one, value)), "")

    return check


def _kind_check(declared: Any, kinds: tuple[Any, ...], takes_truth: bool = False) -> _Check:
    """A truth value is no number, although Python says so."""
    return lambda value: (
        "" if isinstance(value, kinds) and (takes_truth or not isinstance(value, bool)) else _instead(value, declared)
    )


def _instead(value: Any, declared: Any) -> str:
    wanted = "nothing" if declared is NoneType else getattr(declared, "__name__", None) or str(declared)
    return f"{type(value).__name__} where {wanted} is meant"
