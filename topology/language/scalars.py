"""The scalars of the language: names, addresses, amounts with units, instants, selectors, references to secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from watershed.topology import quantities
from watershed.topology.copy_bounds import parse_instant
from watershed.topology.errors import BadSelector
from watershed.topology.model import CheckedValue
from watershed.topology.scalar_shape import ScalarShape
from watershed.topology.secret_ref import SecretRef
from watershed.topology.selectors import Selector
from watershed.topology.spelling import suggest_word
from watershed.topology.text_escaping import shorten_and_escape
from watershed.topology.yaml_shapes import ConvertedShape, ListShape, NamedShape, RecordShape, ScalarOrShape, ShapeKey

NAME_REGEX = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
TOPIC_TEXT = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d)?")
_EXACT_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?(?:Z|[+-]\d\d:\d\d)?")
_HOST = r"(?:\[[0-9a-fA-F:]+\]|[A-Za-z0-9_][A-Za-z0-9._-]*)"  # one that begins with `-` is an option to commands
_ADDRESS = re.compile(
    _HOST + r":(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"  # 1 to 65535
)
# controls (line ends among them) and what turns the direction of writing
_BREAKS = re.compile(r"[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_LINE = f"[^{_BREAKS.pattern[1:-1]}]"
ONE_LINE_KEYS_SCHEMA: Mapping[str, str] = MappingProxyType({"pattern": f"^{_LINE}*$"})
_ENDS = r"(?!\s)(?!.*\s$)"  # no blank at either end
_CLUSTER_ID = re.compile(r"[A-Za-z0-9._=+/-]+")  # Kafka's is 22 of base64url, Confluent's `lkc-…`; others are free text
_PRINCIPAL_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_HTTP = re.compile(r"https?://[A-Za-z0-9._~\[\]:-]+(?:/[A-Za-z0-9._~/-]*)?")
_AMOUNT = r"^[0-9]+(\.[0-9]+)? ?(%s)$"


def build_text_shape(
    expected: str, convert: Any, kind: str = "string", *, quoted: bool = False, **more: Any
) -> ScalarShape:
    """A text that `convert` accepts. more: further keys of its JSON Schema."""
    return ScalarShape(convert, expected, {"type": kind, **more}, quoted)


def build_regex_converter(pattern: re.Pattern[str], expected: str, limit: int = 249) -> Any:
    """A converter that lets through what matches in full, up to `limit` characters."""

    def convert(text: str) -> str:
        if pattern.fullmatch(text) is None or len(text) > limit:
            raise ValueError(f"expected {expected}")
        return text

    return convert


def build_enum_shape(*words: str, elsewhere: Mapping[str, str] = MappingProxyType({})) -> ScalarShape:
    """One of these words; a wrong one is answered with the nearest. elsewhere: word → where it belongs, for a word that
    another key takes."""
    expected = f"one of {', '.join(words)}"

    def convert(text: str) -> str:
        if text not in words:
            near = suggest_word(text, words)
            clue = elsewhere.get(text) or (f"did you mean `{near}`?" if near else "")
            raise ValueError(f"expected {expected}" + (f"; {clue}" if clue else ""))
        return text

    return ScalarShape(convert, expected, {"type": "string", "enum": list(words)})


def build_integer_shape(low: int, high: int) -> ScalarShape:
    """A whole number from low to high, both included."""
    expected = f"a whole number from {low} to {high}"

    def convert(text: str) -> int:
        if re.fullmatch(r"-?[0-9]{1,18}", text) is None or not low <= int(text) <= high:
            raise ValueError(f"expected {expected}")
        return int(text)

    return ScalarShape(convert, expected, {"type": "integer", "minimum": low, "maximum": high}, bare=True)


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a text that is not empty")
    return text


def parse_one_line(text: str) -> str:
    """What names something to brokers and stands in commands and logs."""
    if _BREAKS.search(text):
        raise ValueError("expected a text on one line, without control characters and marks of writing direction")
    return _text(text)


def parse_identifier(text: str) -> str:
    """A group id, a client id, the name of an application: what Kafka's ACLs and quotas take literally."""
    parse_one_line(text)
    if text != text.strip():
        raise ValueError("expected no blank at either end: kafka-acls cuts them off, and means another name")
    if text == "*":
        raise ValueError(
            "expected one name: to Kafka's ACLs `*` is every name, so the right would cover everything; list the names"
        )
    return text


def parse_principal(text: str) -> str:
    """Of an application, as brokers write it."""
    parse_identifier(text)
    kind, colon, name = text.partition(":")
    if not colon or _PRINCIPAL_TYPE.fullmatch(kind) is None:
        raise ValueError("expected `Type:name`, such as `User:checkout`")
    if not name or name != name.strip():
        raise ValueError(f"expected a name behind `{kind}:`, without a blank at either end")
    if name == "*":
        raise ValueError(f"expected one principal: to Kafka's ACLs `{kind}:*` is everybody; name the application's own")
    return text


def _cluster_id(text: str) -> str:
    if _CLUSTER_ID.fullmatch(text) is None or len(text) > 249:
        raise ValueError(
            "expected a cluster id: letters, digits and `._=+/-`, at most 249; `kafka-cluster.sh cluster-id` shows it"
        )
    return text


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("expected `true` or `false`")
    return text == "true"


def _truth(text: str) -> str:
    return "true" if text.lower() in ("y", "yes", "on", "true") else "false"


def _instant(text: str) -> str:
    """An instant as it is written, from one that lacks its quotes, its `T` or its zone; "" from anything else."""
    whole = re.sub(r"^(\d{4}-\d\d-\d\d)[ Tt](\d\d:\d\d(?::\d\d)?)$", r"\1T\2Z", text)
    return f'"{whole}"' if _INSTANT.fullmatch(whole) else ""


def _exact_instant(text: str) -> int:
    if _EXACT_INSTANT.fullmatch(text) is None:
        raise ValueError(f"expected {INSTANT_SHAPE.expected}")
    return parse_instant(text)


def _address(text: str) -> str:
    if _ADDRESS.fullmatch(text) is not None:
        return text
    if "://" in text:
        raise ValueError(f"expected `host:port`, without `{shorten_and_escape(text.partition('://')[0])}://` in front")
    if text.startswith("-"):
        raise ValueError("expected `host:port`; a host begins with a letter, a digit, `_` or `[`, so it is no option")
    if re.fullmatch(_HOST, text):
        raise ValueError("expected `host:port`; the port is missing")
    if re.fullmatch(_HOST + ":[0-9]+", text):
        raise ValueError("expected `host:port`; a port is a number from 1 to 65535")
    raise ValueError("expected `host:port`")


def _selector(kind: Any) -> Any:
    def convert(text: str) -> Selector:
        if kind == "literal" and TOPIC_TEXT.fullmatch(text) is None:
            if set("*?[](|)\\^$+") & set(text):
                raise ValueError("a plain selector is one topic's exact name; write `{glob: …}` or `{regex: …}`")
            raise ValueError("not a topic name (letters, digits, `.`, `_`, `-`; at most 249)")
        selector = Selector(kind, text)
        try:
            selector.automaton()
        except BadSelector as error:
            raise ValueError(str(error)) from None
        return selector

    return convert


def _union(value: CheckedValue) -> Any:
    [chosen] = value.fields.values()
    return chosen.data


def _secret(value: CheckedValue) -> SecretRef:
    [(kind, chosen)] = value.fields.items()
    return SecretRef(kind, chosen.data)  # type: ignore[arg-type]  # the record has only the legal kinds


def _amount(units: Mapping[str, int], per: str = "") -> str:
    return _AMOUNT % "|".join(unit + per for unit in units)


NAME_SHAPE = build_text_shape(
    "a name of lower-case letters, digits and `-`",
    build_regex_converter(NAME_REGEX, "a name of `a-z0-9-`", 80),
    quoted=True,
    pattern=f"^{NAME_REGEX.pattern}$",
    maxLength=80,
)
TEXT_SHAPE = build_text_shape("a text", _text, quoted=True, minLength=1)
LINE_SHAPE = build_text_shape("a text on one line", parse_one_line, quoted=True, minLength=1, **ONE_LINE_KEYS_SCHEMA)
IDENTIFIER_KEYS_SCHEMA: Mapping[str, str] = MappingProxyType({"pattern": rf"^(?!\*$){_ENDS}{_LINE}+$"})
IDENTIFIER_SHAPE = build_text_shape(
    "a name on one line", parse_identifier, quoted=True, minLength=1, **IDENTIFIER_KEYS_SCHEMA
)
PRINCIPAL_SHAPE = build_text_shape(
    "a principal such as `User:checkout`",
    parse_principal,
    quoted=True,
    pattern=rf"^{_PRINCIPAL_TYPE.pattern}:(?!\*$){_ENDS}{_LINE}+$",
    examples=["User:checkout"],
)
CLUSTER_ID_SHAPE = build_text_shape(
    "a cluster id", _cluster_id, quoted=True, minLength=1, maxLength=249, pattern=f"^{_CLUSTER_ID.pattern}$"
)
TOPIC_LITERAL_SHAPE = build_text_shape(
    "a topic's name", _selector("literal"), quoted=True, pattern=f"^{TOPIC_TEXT.pattern}$"
)
TOPIC_NAME_SHAPE = build_text_shape("a topic's name", build_regex_converter(TOPIC_TEXT, "a topic's name"), quoted=True)
BOOLEAN_SHAPE = ScalarShape(_boolean, "`true` or `false`", {"type": "boolean"}, bare=True, mend=_truth)
DURATION_SHAPE = NamedShape(
    "duration",
    build_text_shape(
        "a duration such as `30s`",
        quantities.parse_duration,
        pattern=_amount(quantities.DURATION_UNITS_MS),
        examples=["30s"],
    ),
)
RETENTION_SHAPE = NamedShape(
    "retention",
    build_text_shape(
        "a duration such as `7d`, or `forever`",
        quantities.parse_retention,
        pattern=_amount(quantities.DURATION_UNITS_MS) + "|^forever$",
        examples=["7d", "forever"],
    ),
)
SIZE_SHAPE = NamedShape(
    "size",
    build_text_shape(
        "a size such as `1MiB`", quantities.parse_size, pattern=_amount(quantities.SIZE_UNITS_BYTES), examples=["1MiB"]
    ),
)
RATE_SHAPE = NamedShape(
    "rate",
    build_text_shape(
        "a rate such as `60MiB/s`",
        quantities.parse_rate,
        pattern=_amount(quantities.SIZE_UNITS_BYTES, "/s"),
        examples=["60MiB/s"],
    ),
)
NONZERO_DURATION_SHAPE = NamedShape(
    "duration_above_zero",
    build_text_shape(
        "a duration above zero such as `30s`",
        quantities.parse_nonzero_duration,
        pattern=r"^(?![0.]* ?[A-Za-z])" + _amount(quantities.DURATION_UNITS_MS),
        examples=["30s"],
    ),
)
NONZERO_RATE_SHAPE = NamedShape(
    "rate_above_zero",
    build_text_shape(
        "a rate above zero such as `60MiB/s`",
        quantities.parse_nonzero_rate,
        pattern=r"^(?![0.]* ?[A-Za-z])" + _amount(quantities.SIZE_UNITS_BYTES, "/s"),
        examples=["60MiB/s"],
    ),
)
SHARE_SHAPE = NamedShape(
    "share",
    build_text_shape("a share such as `5%`", quantities.parse_share, pattern=_amount({"%": 1}), examples=["5%"]),
)
COUNT_SHAPE = build_integer_shape(1, 1_000_000)
RECORD_COUNT_SHAPE = build_integer_shape(0, 10**15)
REPLICA_COUNT_SHAPE = build_integer_shape(1, 32)
INSTANT_SHAPE = ScalarShape(
    build_regex_converter(_INSTANT, 'an instant with its zone, such as "2026-03-02T02:00:00Z"'),
    'an instant with its zone, such as "2026-03-02T02:00:00Z"',
    {"type": "string", "pattern": f"^{_INSTANT.pattern}$", "examples": ['"2026-03-02T02:00:00Z"']},
    quoted=True,
    mend=_instant,
)
EXACT_INSTANT_SHAPE = ScalarShape(  # its value is in milliseconds since 1970
    _exact_instant,
    INSTANT_SHAPE.expected,
    {**INSTANT_SHAPE.json, "pattern": f"^{_EXACT_INSTANT.pattern}$"},
    quoted=True,
    mend=_instant,
)
BROKER_ADDRESS_SHAPE = build_text_shape(
    "`host:port`", _address, pattern=f"^{_ADDRESS.pattern}$", examples=["k1.example.internal:9092"]
)
HTTP_URL_SHAPE = build_text_shape(
    "an address such as `http://127.0.0.1:8080`", build_regex_converter(_HTTP, "an http address")
)
REGISTRY_URL_SHAPE = build_text_shape(  # a user in it is SEC601's to find, with a better answer
    "an address such as `https://registry.example.internal`",
    build_regex_converter(re.compile(r"https?://\S+"), "an address that begins with `http://` or `https://`", 2000),
)
SYNC_MODE_SHAPE = build_enum_shape("never", "once", "continuous")
PROOF_LEVEL_SHAPE = build_enum_shape("L0", "L1", "L2", "L3")
SEPARATOR_SHAPE = build_text_shape(
    "`.`, `-` or `_`", build_regex_converter(re.compile(r"[._-]{1,3}"), "`.`, `-` or `_`")
)
SELECTOR_SHAPE = NamedShape(
    "selector",
    ScalarOrShape(
        TOPIC_LITERAL_SHAPE,
        ConvertedShape(
            RecordShape(
                {
                    "glob": ShapeKey(
                        build_text_shape("a glob", _selector("glob"), quoted=True),
                        "`*` is any text, `?` any one character.",
                    ),
                    "regex": ShapeKey(
                        build_text_shape("a regex", _selector("regex"), quoted=True),
                        "A regular expression that matches the whole name; no look-around, no back-references.",
                    ),
                },
                one_of=True,
            ),
            _union,
        ),
    ),
)
SECRET_REF_SHAPE = NamedShape(
    "secret",
    ConvertedShape(
        RecordShape(
            {
                "airflow_connection": ShapeKey(TEXT_SHAPE, "The id of an Airflow connection."),
                "env": ShapeKey(TEXT_SHAPE, "The name of an environment variable of the process that connects."),
                "file": ShapeKey(TEXT_SHAPE, "The path of a file on the machine that connects."),
            },
            one_of=True,
            usual="{env: NAME}",
        ),
        _secret,
    ),
)
SELECTOR_LIST_SHAPE = ListShape(
    SELECTOR_SHAPE, empty="nothing would be selected; name topics, or leave the section out"
)
EXCLUDE_LIST_SHAPE = ListShape(SELECTOR_SHAPE)
NAME_LIST_SHAPE = ListShape(NAME_SHAPE)
TEXT_LIST_SHAPE = ListShape(TEXT_SHAPE)
IDENTIFIER_LIST_SHAPE = ListShape(IDENTIFIER_SHAPE)
