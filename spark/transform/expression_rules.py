"""Which expressions a flow may use: those that a proof can repeat, and that show no secret.

The tree is Spark's own: what it parses is what it will run. docs/transform.md lists the functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from watershed.spark.errors import SparkError
from watershed.topology.record_expressions import ALLOWED_FUNCTIONS, SECRET_FUNCTION

_ONE_WAY: Final = frozenset({"sha", "sha1", "sha2"})
_AROUND_SECRETS: Final = frozenset({"concat", "concat_ws"})
_COLUMNS: Final = ("key", "value", "headers", "timestamp", "topic", "partition", "offset")
_NAMES_BEHIND: Final = ("Alias", "MultiAlias")
_CLOCKS: Final = ("Current", "Now", "LocalTimestamp")
_NEVER: Final = {
    "UnresolvedStar": "`*` is not allowed; name what you mean",
    "ScalarSubquery": "a subquery is not allowed: an expression looks at one record",
    "Exists": "a subquery is not allowed: an expression looks at one record",
    "ListQuery": "a subquery is not allowed: an expression looks at one record",
    "LambdaFunction": "a lambda is not allowed",
    "WindowExpression": "a window is not allowed: an expression looks at one record",
    "UnresolvedWindowExpression": "a window is not allowed: an expression looks at one record",
}


class WrongExpression(SparkError):
    """An expression that cannot be used. path: where it stands below `transform`, such as `set.value.email`."""

    exit_code = 2

    def __init__(self, path: str, text: str, reason: str) -> None:
        self.path, self.text, self.reason = path, text, reason
        super().__init__(f"`transform.{path}`: {reason}; it says {text!r}")


def check_expression(tree: Any, path: str, text: str) -> None:
    """Look at a Catalyst expression as the parser gives it. Raises WrongExpression."""
    for node, above in _walk(tree, ()):
        kind = str(node.getClass().getSimpleName())
        reason = _NEVER.get(kind) or _judge_node(node, kind, above)
        if reason:
            raise WrongExpression(path, text, reason)


def _walk(node: Any, above: tuple[str, ...]) -> Iterator[tuple[Any, tuple[str, ...]]]:
    yield node, above
    children = node.children()
    name = _name_function(node) or str(node.getClass().getSimpleName()).lower()
    for at in range(children.size()):
        yield from _walk(children.apply(at), (name, *above))


def _judge_node(node: Any, kind: str, above: Sequence[str]) -> str:
    if kind.startswith(_CLOCKS):
        return "it asks for the time of day, and a proof could not repeat that"
    if kind == "UnresolvedAttribute":
        name = str(node.nameParts().apply(0))
        known = name.lower() in _COLUMNS
        return "" if known else f"there is no `{name}`; an expression sees {', '.join(_COLUMNS)}"
    if kind in _NAMES_BEHIND and not above:  # inside struct(…) it is the name of a field
        return (
            "its last word is one that Spark takes for a name, as if AS stood there; complete it, or leave the word out"
        )
    name = _name_function(node)
    if name == SECRET_FUNCTION:
        return _judge_secret(node, above)
    if name and name not in ALLOWED_FUNCTIONS:
        return f"the function `{name}` is not among those that a proof can repeat (docs/transform.md)"
    return ""


def _judge_secret(node: Any, above: Sequence[str]) -> str:
    arguments = node.children()
    if arguments.size() != 1 or str(arguments.apply(0).getClass().getSimpleName()) != "Literal":
        return "secret takes one name in quotes, such as secret('PEPPER')"
    outer = next((name for name in above if name not in _AROUND_SECRETS), "")
    if outer not in _ONE_WAY:
        return "a secret stands inside sha2(concat(…, secret('NAME')), 256) only, or it would be shown in the records"
    return ""


def _name_function(node: Any) -> str:
    """The name of a function that is called, in lower case; "" for anything else."""
    kind = str(node.getClass().getSimpleName())
    if kind == "Concat":  # `||`
        return "concat"
    if kind != "UnresolvedFunction":
        return ""
    parts = node.nameParts()
    return ".".join(str(parts.apply(at)) for at in range(parts.size())).lower()
