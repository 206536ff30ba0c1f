"""What can be said of an expression of `transform`, and of its `schema`, without Spark: which functions it calls, which
fields it reads, which fields there are."""

from __future__ import annotations

import re
from typing import Final

SECRET_FUNCTION: Final = "secret"  # noqa: S105  the name of a function
_NAMES: Final = """
    abs acos array array_contains array_distinct array_except array_intersect array_join array_max array_min
    array_position array_remove array_repeat array_size array_sort array_union arrays_overlap ascii base64
    bigint bin binary bit_count bit_length boolean btrim cardinality cast ceil ceiling char char_length
    character_length chr coalesce concat concat_ws contains conv crc32 date date_add date_diff date_format
    date_from_unix_date date_part date_sub date_trunc datediff day dayofmonth dayofweek dayofyear decimal decode
    double element_at elt encode endswith equal_null exp find_in_set flatten float floor format_number
    format_string from_unixtime from_utc_timestamp get get_json_object greatest hash hex hour if ifnull initcap
    instr int isnan isnotnull isnull json_array_length json_object_keys lcase least left length levenshtein like
    ln locate log log10 log2 lower lpad ltrim make_date make_timestamp map map_contains_key map_from_arrays
    map_keys map_values mask md5 minute mod month months_between named_struct negative nullif nvl nvl2
    octet_length overlay parse_url position positive pow power quarter regexp_count regexp_extract regexp_instr
    regexp_like regexp_replace regexp_substr repeat replace reverse right rint rlike round rpad rtrim second sha
    sha1 sha2 shiftleft shiftright sign signum size slice smallint sort_array soundex split split_part sqrt
    startswith string struct substr substring substring_index timestamp timestamp_micros timestamp_millis
    timestamp_seconds tinyint to_char to_date to_json to_timestamp to_utc_timestamp translate trim trunc try_add
    try_cast try_divide try_element_at try_multiply try_subtract try_to_date try_to_number try_to_timestamp
    try_validate_utf8 typeof ucase unbase64 unhex unix_date unix_micros unix_millis unix_seconds upper
    url_decode url_encode validate_utf8 weekday weekofyear width_bucket xxhash64 year
"""
# Deterministic, without a clock, a random number, a file, a class of the user's or an error on purpose. Operators, CASE
# and casts are no functions here.
ALLOWED_FUNCTIONS: Final = frozenset(_NAMES.split())
# Words that may stand in front of a bracket and call nothing, or a type with its sizes.
_WORDS: Final = """
    all and any as between by case char decimal else end exists from in interval is like not of or over rlike then to
    varchar when where
"""
_NO_FUNCTIONS: Final = frozenset(_WORDS.split())
_TEXT_OR_NAME: Final = re.compile(r"'(?:[^'\\\\]|\\\\.)*'|\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`", re.DOTALL)
_CALL: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)\s*\(")
_TEXT: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_NAME: Final = r"(?:[A-Za-z_][A-Za-z0-9_]*|`[^`]+`)"
_COLUMNS: Final = "key|value|headers|timestamp|topic|partition|offset"
# No field: a function of that name, the type `as timestamp`, the literal `timestamp '…'`.
_FIELD: Final = re.compile(
    rf"(?i:\bas\s+timestamp\b)|(?<![\w.`])((?:{_COLUMNS})(?:\.{_NAME})*)(?![\w.`])(?!\s*(?:\(|''))"
)
_SCHEMA_FIELD: Final = re.compile(r"\s*(`[^`]+`|[^\s:]+)[\s:]+(.*?)\s*", re.DOTALL)


def find_unknown_functions(text: str) -> list[str]:
    """The functions that an expression calls and that are not allowed, as it writes them; those in quotes are none."""
    called: list[str] = _CALL.findall(_TEXT_OR_NAME.sub("''", text))
    known = ALLOWED_FUNCTIONS | _NO_FUNCTIONS | {SECRET_FUNCTION}
    return [name for name in dict.fromkeys(called) if name.lower() not in known]


def find_read_fields(text: str) -> list[str]:
    """The columns and fields that an expression reads, such as `value.email`, each once, in its order. Of headers only
    the column: its names are arguments of functions. Names are case sensitive, as docs/transform.md has them."""
    found = (match[1] for match in _FIELD.finditer(_TEXT.sub("''", text)))
    return list(dict.fromkeys(name.replace("`", "") for name in found if name))


def split_schema_fields(text: str) -> list[tuple[str, str]]:
    """Name and type of each field at the top of a schema in Spark's DDL: `a string, b struct<c: int>`."""
    parts, depth, quoted = [""], 0, False
    for letter in text:
        quoted ^= letter == "`"
        depth += 0 if quoted else (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    found = filter(None, map(_SCHEMA_FIELD.fullmatch, parts))
    return [(match[1].strip("`"), match[2]) for match in found]
