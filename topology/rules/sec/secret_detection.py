"""What looks like a secret in the raw file, also where the language has no place for it; no value is returned."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from watershed.topology.finding import Confidence, FileSpan
from watershed.topology.scalar_shape import NULL_SCALARS
from watershed.topology.text_escaping import shorten_and_escape
from watershed.topology.yaml_tree import YamlNode

_Key = str | int
_REFERENCES = ("env", "file", "airflow_connection")
_HOLDERS = {("credentials",), ("ca",), ("certificate",), ("key",)}
_NO_SECRET = {"true", "false", "yes", "no", "on", "off"}
# the end of a key without dots and dashes; the list follows what Kafka's clients and confluentinc/kcp redact
_KEY = re.compile(
    r"(?:password|passwd|passphrase|pwd|secret|secretkey|accesskey|apikey|token|privatekey|jaasconfig|userinfo"
    r"|keystorekey)s?$|^(?:pass|pw)$"
)
_ADDRESS = "user and password in an address"
_TEXTS = (
    (re.compile(r"-----BEGIN [A-Z ]+-----"), "a key or certificate in PEM form"),
    (re.compile(r"LoginModule\s+(?:required|requisite|sufficient|optional)\b"), "JAAS text"),
    (re.compile(r"://[^\s/@]+@"), _ADDRESS),
    (re.compile(r"\b(?:Bearer|Basic)\s+(?=\S*[0-9=])[A-Za-z0-9._~+/=-]{16,}"), "an authorisation header"),
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), "an AWS access key"),
    (re.compile(r"(?<![\w-])(?=[\w-]*\beyJ[\w-]{8})[\w-]+\.[\w-]{8,}\.[\w-]+"), "a JSON web token"),
    (re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|xox[abprs]-[A-Za-z0-9-]{10,})"), "an access token"),
    (re.compile(r"(?i)(?:password|passwd|secret|token|api_?key)\s*=\s*[\"']?[^\s\"'${<]{2,}"), "a password in a text"),
)
# user:password@host, where no sentence and no mail address is expected
_USER = re.compile(r"(?<![^\s\"',\[])(?!mailto:)[^\s/@:]{1,128}:[^\s/@:]+@[^\s@]")
_PROSE = {"owner", "description", "approval", "none"}
_PERHAPS = re.compile(r"[@=]|-----BEGIN|LoginModule|Bearer|Basic|AKIA|ASIA|eyJ|gh[pousr]_|xox", re.IGNORECASE)
_INTERPOLATION = re.compile(r"\$\{[\w.:/-]+\}|\$\([\w.]+\)|\{\{[^{}]+\}\}|<%[^%]*%>")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONNECTION = re.compile(r"[\w#!()\-.:/\\]+")  # apache/airflow connection ids


@dataclass(frozen=True, slots=True)
class RawScalar:
    """A scalar of the raw file with the keys and numbers that lead to it. is_key: it is itself a key."""

    keys: tuple[_Key, ...]
    node: YamlNode
    is_key: bool = False

    @property
    def path(self) -> str:
        """Readable, and without anything that looks like a secret."""
        text = ""
        for key in self.keys:
            if isinstance(key, int):
                text += f"[{key}]"
            else:
                text += ("." if text else "") + (
                    "…" if "@" in key or _detect_secret_text(key) else shorten_and_escape(key)
                )
        return text

    @property
    def names(self) -> tuple[str, ...]:
        """The keys without the numbers of lists."""
        return tuple(key for key in self.keys if isinstance(key, str))

    @property
    def start(self) -> FileSpan:
        """Where it begins, one letter long: its end would say how long the secret is."""
        span = self.node.span
        return FileSpan(span.file, span.line, span.column, span.line, span.column + 1)


def walk_raw_scalars(nodes: Iterable[YamlNode]) -> Iterator[RawScalar]:
    """Every scalar of the trees, keys included, from the top."""
    todo: list[tuple[tuple[_Key, ...], YamlNode]] = [((), node) for node in reversed(tuple(nodes))]
    while todo:
        keys, node = todo.pop()
        if node.kind == "scalar":
            yield RawScalar(keys, node)
        elif node.kind == "list":
            todo += [((*keys, index), each) for index, each in reversed(list(enumerate(node.items)))]
        else:
            for key, _ in node.entries:
                if key.kind == "scalar":
                    yield RawScalar((*keys, key.text), key, is_key=True)
            todo += [((*keys, key.text), value) for key, value in reversed(node.entries)]


def detect_secret(scalar: RawScalar) -> tuple[str, Confidence] | None:
    """What kind of secret the scalar holds, in words, and how sure that is."""
    text, names = scalar.node.text, scalar.names
    found = _detect_secret_text(text)
    if found is None and "@" in text and names[:1] != ("metadata",) and not _PROSE & set(names[-1:]):
        found = _ADDRESS if _USER.search(text) else None
    if found is not None:
        return found, "certain"
    if scalar.is_key or not names or text in NULL_SCALARS or names[-2:-1] == ("map",):
        return None  # the keys of `naming.map` are topics
    if names[-1] in _REFERENCES and (names[-2:-1] in _HOLDERS or _secret_key(names[-2] if len(names) > 1 else "")):
        return ("a secret where its name belongs", "likely") if _no_reference(names[-1], text) else None
    if text.lower() in _NO_SECRET or _INTERPOLATION.fullmatch(text):
        return None
    if _secret_key(names[-1]):
        return "a password, key or token", "certain"
    if names[-1] == "credentials":
        return "a text where only a reference may stand", "certain" if _is_random_text(text) else "likely"
    return None


def _detect_secret_text(text: str) -> str | None:
    """What the text is, wherever it stands; None: nothing that is known."""
    if _PERHAPS.search(text) is None:
        return None
    return next((what for pattern, what in _TEXTS if pattern.search(text)), None)


def _is_random_text(text: str) -> bool:
    """Sixteen letters or more without a word in them: three kinds of characters and 3.5 bits a letter (Shannon)."""
    if len(text) < 16 or not re.fullmatch(r"[\w+/=.~!@#$%^&*-]+", text):
        return False
    kinds = sum(bool(re.search(kind, text)) for kind in ("[a-z]", "[A-Z]", "[0-9]", "[^A-Za-z0-9]"))
    shares = [count / len(text) for count in Counter(text).values()]
    return kinds >= 3 and -sum(share * math.log2(share) for share in shares) >= 3.5


@lru_cache(maxsize=4096)
def _secret_key(name: str) -> bool:
    return _KEY.search(re.sub(r"[^a-z0-9]", "", name.lower())) is not None


def _no_reference(kind: str, text: str) -> bool:
    """Whether a text put into `{env: …}`, `{file: …}` or `{airflow_connection: …}` cannot be its name."""
    if _INTERPOLATION.search(text):
        return False
    mixed = len(text) >= 10 and all(re.search(each, text) for each in ("[a-z]", "[A-Z]", "[0-9][A-Za-z]"))
    if kind == "env":
        return _VARIABLE.fullmatch(text) is None or mixed
    if kind == "file":
        return (mixed and not set("/.\\") & set(text)) or "\n" in text
    return _CONNECTION.fullmatch(text) is None or (mixed and _is_random_text(text))
