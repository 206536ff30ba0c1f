"""One codec for the records of the control topics: a frozen dataclass is its JSON form, field by field.

The annotation of a field says how it stands in JSON:

- text, numbers, truth values, `Literal`, `Any`, `dict`: as they are;
- `tuple[X, ...]` and a named tuple: a list; `frozenset[X]`: a sorted list; `uuid.UUID`: text;
- `Mapping[str, X]` and `Mapping[int, X]`: an object; `Mapping[TopicPartition, X]`: topic → partition → X;
- another dataclass: what its own `to_json` gives, or an object with exactly its fields.

The key `schema` holds the version of the record. Kinds that were written before there was such a key do not write it;
there a missing key means version 1 (decision 0075).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

from watershed.clusters.control_values import UNREADABLE_ERRORS, ControlValue
from watershed.clusters.errors import UnreadableControlRecord
from watershed.clusters.field_types import require_types
from watershed.clusters.topic_partition import TopicPartition
from watershed.topology.errors import UnknownKeys

VERSION_KEY: Final = "schema"
_NEWER: Final = "Use the version of Watershed that wrote it, or a newer one"
_NEWER_OR_MISSPELT: Final = (
    f"{_NEWER}. Where no newer version was ever in use, somebody wrote it by hand: while nothing that it is about has "
    "moved, delete it with a tombstone (a record with this key and no value) and run `topology apply`"
)
_Conversion = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class ControlRecordFormat:
    """What fields do not say of a kind of record.

    name: for messages. version: the newest that is known; it is written if writes_version. added_later: fields that
    earlier versions did not write, so that they may be missing; None: all that have a default. constants: keys that
    are written and never read. remedy: what to do about a record that cannot be read, as one or more sentences.
    """

    name: str
    topic: str
    version: int = 1
    writes_version: bool = True
    added_later: tuple[str, ...] | None = ()
    constants: Mapping[str, str] = field(default_factory=dict)
    remedy: str = ""


class ControlRecordBody:
    """Base of the frozen dataclasses that are records of control topics. `FORMAT` says the rest of their form."""

    __slots__ = ()
    FORMAT: ClassVar[ControlRecordFormat]

    def to_json(self) -> ControlValue:
        """Returns the record as JSON, as it stands in the control topic."""
        form = self.FORMAT
        kind: Any = type(self)
        value: ControlValue = {VERSION_KEY: form.version} if form.writes_version else {}
        value |= form.constants
        for each in _form_fields(kind):
            content = getattr(self, each.name)
            value[each.name] = content if each.encode is None else each.encode(content)
        return self.adapt_for_earlier_versions(value)

    def adapt_for_earlier_versions(self, value: ControlValue) -> ControlValue:
        """The value as it is written. A kind may write what earlier versions obey safely, although they do not know all
        that the record says; `undo_adaptation` takes it back."""
        return value

    @classmethod
    def undo_adaptation(cls, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """The inverse of `adapt_for_earlier_versions`."""
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any], key: str | None = None) -> Self:
        """Returns the record; keys that are not known are left out. key: under which the value stands, if known.

        Raises `UnreadableControlRecord`, which names the field: it is missing, of another type, or of a newer version.
        """
        kind: Any = cls
        at = VERSION_KEY
        try:
            _require_version(value, cls.FORMAT)
            value = cls.undo_adaptation(value)
            found: dict[str, Any] = {}
            for each in _form_fields(kind):
                at = each.name
                if at in value or each.required:
                    found[at] = value[at] if each.decode is None else each.decode(value[at])
            at = ""
            record: Self = require_types(kind(**found))
            why = record.explain_invalid()
            if not why and key is not None and getattr(record, "key", key) != key:
                why = "it is about something else than its key"
        except UNREADABLE_ERRORS as error:
            has_unknown = isinstance(error, UnknownKeys)
            is_newer = has_unknown or (at == VERSION_KEY and _is_newer(value, cls.FORMAT))
            at, why = _describe(error, at)
            remedy = _NEWER_OR_MISSPELT if has_unknown else _NEWER if at == VERSION_KEY else cls.FORMAT.remedy
            raise cls._unreadable(why, at, key, remedy, is_newer=is_newer) from None
        if why:
            raise cls._unreadable(why, at, key, cls.FORMAT.remedy)
        return record

    def explain_invalid(self) -> str:
        """Why the content is none, although every field has its type; empty when it is one."""
        return ""

    @classmethod
    def _unreadable(
        cls, why: str, at: str, key: str | None, remedy: str, *, is_newer: bool = False
    ) -> UnreadableControlRecord:
        form = cls.FORMAT
        where = "" if key is None else f" under key {key!r:.200}"
        text = f"{form.topic} holds {form.name}{where} that this version cannot read: {why}"
        return UnreadableControlRecord(
            f"{text}. {remedy}." if remedy else text, topic=form.topic, key=key or "", field=at, is_newer=is_newer
        )


def require_known_version(value: Mapping[str, Any], newest: int) -> int:
    """The version that the value states. Raises KeyError without one, ValueError for one that is not known."""
    stated = value[VERSION_KEY]
    if not isinstance(stated, int) or isinstance(stated, bool) or not 1 <= stated <= newest:
        raise ValueError(f"{VERSION_KEY} {stated}, and versions up to {newest} are known here")
    return stated


def _require_version(value: Mapping[str, Any], form: ControlRecordFormat) -> None:
    if form.writes_version or VERSION_KEY in value:
        require_known_version(value, form.version)


def _is_newer(value: Mapping[str, Any], form: ControlRecordFormat) -> bool:
    stated = value.get(VERSION_KEY)
    return isinstance(stated, int) and not isinstance(stated, bool) and stated > form.version


def _describe(error: Exception, at: str) -> tuple[str, str]:
    """The field and what is wrong with it. `require_types` names the field itself."""
    if isinstance(error, KeyError) and error.args == (at,):
        return at, f"{at} is missing"
    if not at:
        text = str(error)
        return text.partition(":")[0], text
    return at, (str(error) if at == VERSION_KEY else f"{at}: {type(error).__name__}: {error}")[:500]


class _FormField(NamedTuple):
    """encode, decode: None where JSON's value is the field's value."""

    name: str
    required: bool
    encode: _Conversion | None
    decode: _Conversion | None


class _Form(NamedTuple):
    encode: _Conversion | None = None
    decode: _Conversion | None = None


_PLAIN: Final = _Form()


@lru_cache(maxsize=100)
def _form_fields(kind: Any) -> tuple[_FormField, ...]:
    hints, later = get_type_hints(kind), kind.FORMAT.added_later
    return tuple(
        _FormField(
            each.name,
            each.name not in later if later is not None else each.default is each.default_factory is MISSING,
            *_form_of(hints[each.name]),
        )
        for each in fields(kind)
    )


def _form_of(declared: Any) -> _Form:
    """Raises TypeError for an annotation that has no form here: a fault of whoever wrote the class.

    A decoder leaves what is of another shape as it is: `require_types` then says what is wrong, with the field's name.
    """
    origin, arguments = get_origin(declared), get_args(declared)
    if declared is Any or declared in (str, int, float, bool, NoneType) or origin in (Literal, dict):
        return _PLAIN
    if declared is uuid.UUID:
        return _Form(str, uuid.UUID)
    if origin in (Union, UnionType):
        return _form_of_optional(declared, [each for each in arguments if each is not NoneType])
    if isinstance(declared, type) and is_dataclass(declared):
        return _form_of_dataclass(declared)
    if isinstance(declared, type) and issubclass(declared, tuple) and hasattr(declared, "_fields"):
        return _Form(list, lambda value: declared(*value) if isinstance(value, list) else value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _form_of_mapping(arguments[0], _form_of(arguments[1]))
    if isinstance(origin, type) and issubclass(origin, Sequence | AbstractSet):
        return _form_of_collection(tuple if issubclass(origin, Sequence) else frozenset, _form_of(arguments[0]))
    raise TypeError(f"{declared} has no form in a control record")


def _form_of_optional(declared: Any, members: Sequence[Any]) -> _Form:
    forms = [_form_of(each) for each in members]
    if all(each == _PLAIN for each in forms):
        return _PLAIN
    if len(forms) > 1:
        raise TypeError(f"{declared} has no form in a control record")
    return _Form(*(_unless_none(each) for each in forms[0]))


def _unless_none(convert: _Conversion | None) -> _Conversion | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _form_of_dataclass(declared: Any) -> _Form:
    if hasattr(declared, "from_json"):
        return _Form(declared.to_json, declared.from_json)
    hints = get_type_hints(declared)
    if any(_form_of(each) != _PLAIN for each in hints.values()):
        raise TypeError(f"{declared} has no form in a control record: one of its fields is not plain")
    names = tuple(each.name for each in fields(declared))
    return _Form(lambda value: {name: getattr(value, name) for name in names}, lambda value: declared(**value))


def _form_of_mapping(key: Any, content: _Form) -> _Form:
    encode, decode = (each or _keep for each in content)
    if key is TopicPartition:
        return _Form(lambda value: _nest(value, encode), lambda value: _flatten(value, decode))
    if key not in (str, int):
        raise TypeError(f"{key} has no form as a key in a control record")
    return _Form(
        lambda value: {str(name): encode(each) for name, each in value.items()},
        lambda value: (
            {key(name): decode(each) for name, each in value.items()} if isinstance(value, Mapping) else value
        ),
    )


def _nest(value: Mapping[TopicPartition, Any], encode: _Conversion) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for place in sorted(value):
        found.setdefault(place.topic, {})[str(place.partition)] = encode(value[place])
    return found


def _flatten(value: Mapping[str, Mapping[str, Any]], decode: _Conversion) -> dict[TopicPartition, Any]:
    return {
        TopicPartition(topic, int(number)): decode(each)
        for topic, numbers in value.items()
        for number, each in numbers.items()
    }


def _form_of_collection(kind: Callable[[Iterable[Any]], Any], content: _Form) -> _Form:
    encode, decode = (each or _keep for each in content)
    order: Callable[[Iterable[Any]], Any] = list if kind is tuple else sorted
    return _Form(
        lambda value: order(encode(each) for each in value),
        lambda value: kind(decode(each) for each in value) if isinstance(value, list) else value,
    )


def _keep(value: Any) -> Any:
    return value
