"""Files that were written to hurt a reader: name -> the bytes, and what the answer must say.

Made by functions, because the large ones do not belong in a repository and editors repair the broken ones. Small files
that people can read stand beside this module as `*.yaml` and are part of the corpus too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
MIB = 1 << 20
HEAD = "apiVersion: topology/v1alpha1\nkind: Topology\nmetadata: {name: hostile}\n"
CLUSTERS = "clusters:\n  a: {bootstrap: [k1.a.example.internal:9093]}\n  b: {bootstrap: [k1.b.example.internal:9093]}\n"
FLOW = "flows:\n  - {source: a, target: b, topics: {include: [orders]}}\n"
CLEAN = HEAD + CLUSTERS + FLOW


@dataclass(frozen=True, slots=True)
class Hostile:
    """`says` must stand in the answer (stdout or stderr), "" where any is fine; `exit`: the codes that are right."""

    data: bytes
    says: str = ""
    exit: tuple[int, ...] = (0, 1, 2)


Builder = Callable[[], Hostile]
CASES: dict[str, Builder] = {}


def case(says: str = "", *codes: int) -> Callable[[Callable[[], str | bytes]], Callable[[], str | bytes]]:
    """Add the function's text under the function's name."""

    def add(build: Callable[[], str | bytes]) -> Callable[[], str | bytes]:
        def made() -> Hostile:
            data = build()
            return Hostile(data.encode() if isinstance(data, str) else data, says, codes or (0, 1, 2))

        CASES[build.__name__] = made
        return build

    return add


def corpus() -> dict[str, Builder]:
    """Every case by name, the files of this folder included."""
    files = {path.stem: (lambda path=path: Hostile(path.read_bytes())) for path in sorted(HERE.glob("*.yaml"))}
    assert not files.keys() & CASES.keys()
    return files | CASES


def flows(*lines: str) -> str:
    return HEAD + CLUSTERS + "flows:\n" + "".join(f"  - {line}\n" for line in lines)


def selecting(*selectors: str) -> str:
    """A file with one flow that selects these."""
    return flows(f"{{source: a, target: b, topics: {{include: [{', '.join(selectors)}]}}}}")


def regex(*patterns: str) -> str:
    return selecting(*(f"{{regex: '{pattern}'}}" for pattern in patterns))


def routes(*selectors: str) -> str:
    """One cluster c that as many flows write, each with one selector: every pair must be compared."""
    count = len(selectors)
    clusters = "".join(f"  s{n}: {{bootstrap: [k{n}.example.internal:9093]}}\n" for n in range(count))
    lines = "".join(
        f"  - {{source: s{n}, target: b, topics: {{include: [{each}]}}}}\n" for n, each in enumerate(selectors)
    )
    return HEAD + CLUSTERS + clusters + "flows:\n" + lines


# --- bombs: little text, much data ---


@case("SYN014", 1)
def billion_laughs() -> str:
    lines = ["l0: &l0 [lol]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 12)]
    return CLEAN + "metadata2:\n" + "".join(f"  {line}\n" for line in lines)


@case("SYN014", 1)
def quadratic_blowup() -> str:
    return CLEAN + f"big: &big {'x' * 200_000}\nmany: [{', '.join(['*big'] * 2_000)}]\n"


@case("SYN014", 1)
def alias_flood() -> str:
    return CLEAN + "one: &o x\nmany: [" + "*o," * 300_000 + "]\n"


@case("SYN014", 1)
def anchor_flood() -> str:
    return CLEAN + "many:\n" + "".join(f"- &a{n} x\n" for n in range(70_000))


@case("SYN014", 1)
def tag_flood() -> str:
    return CLEAN + "many:\n" + "- !!str x\n" * 90_000


@case("SYN014", 1)
def alias_cycle() -> str:
    return CLEAN + "loop: &loop [*loop, {again: *loop}]\n"


@case("SYN014", 1)
def merge_keys() -> str:
    return HEAD + CLUSTERS + "base: &base {source: a}\nflows:\n  - {<<: *base, target: b, topics: {include: [x]}}\n"


# --- depth ---


@case("SYN001", 1)
def deep_lists() -> str:
    return HEAD + "flows: " + "[" * 500_000


@case("SYN001", 1)
def deep_lists_closed() -> str:
    return HEAD + "flows: " + "[" * 100_000 + "]" * 100_000 + "\n"


@case("SYN001", 1)
def deep_maps() -> str:
    return HEAD + "flows: " + "{a: " * 200_000


@case("SYN001", 1)
def deep_maps_without_spaces() -> str:
    return HEAD + "flows: " + "{" * 500_000


@case("SYN001", 1)
def deep_indentation() -> str:
    return HEAD + "flows:\n" + "".join(f"{' ' * n}a:\n" for n in range(1, 1_200))


@case("SYN001", 1)
def deep_dashes() -> str:
    return HEAD + "flows:\n  " + "- " * 400_000 + "x\n"


@case("SYN001", 1)
def deep_keys() -> str:
    return HEAD + "? " * 300_000 + "x\n"


@case("SYN001", 1)
def deep_keys_in_flow() -> str:
    return HEAD + "flows: " + "{? " * 100_000


@case("SYN011", 1)
def complex_keys() -> str:
    return CLEAN + "? [a, b]\n: c\n? {d: e}\n: f\n"


@case("SYN011", 1)
def complex_keys_many() -> str:
    return CLEAN + "".join(f"? [a, {n}]\n: c\n" for n in range(25_000))


# --- amount ---


@case("SYN001", 1)
def tiny_nodes() -> str:
    return HEAD + "flows: [" + "x," * 400_000 + "]\n"


@case("SYN011", 1)
def tiny_nodes_below_the_limit() -> str:
    return CLEAN + "metadata2: x\nmigration: {flow: a-to-b, waves: [" + "x," * 110_000 + "]}\n"


@case("SYN003", 1)
def tiny_keys() -> str:
    return CLEAN + "".join(f"k{n}:\n" for n in range(55_000))


@case("SYN003", 1)
def tiny_keys_on_one_line() -> str:
    return HEAD + CLUSTERS + "defaults: {" + ",".join(f"k{n}: 1" for n in range(55_000)) + "}\n"


@case("SYN002", 1)
def duplicate_keys() -> str:
    return CLEAN + "kind: Topology\n" * 55_000


@case("SYN012", 1)
def list_of_empty_maps() -> str:
    return HEAD + CLUSTERS + "flows: [" + "{}," * 110_000 + "]\n"


@case("SYN011", 1)
def list_of_empty_lists() -> str:
    return HEAD + CLUSTERS + "flows: [" + "[]," * 110_000 + "]\n"


@case("", 2)
def line_of_10_mb() -> str:
    return CLEAN + "# " + "x" * 10_000_000 + "\n"


@case("", 2)
def scalar_of_10_mb() -> str:
    return CLEAN + "note: " + "x" * 10_000_000 + "\n"


@case()
def line_of_1_mib() -> str:
    return CLEAN + "note: [" + "word, " * 170_000 + "]\n"


@case("SYN003", 1)
def scalar_of_1_mib() -> str:
    return CLEAN + "note: " + "x" * (MIB - 400) + "\n"


@case("", 1)
def name_of_1_mib() -> str:
    return CLEAN.replace("name: hostile", f'name: "{"x" * (MIB - 400)}"')


@case("", 1)
def topic_of_1_mib() -> str:
    return selecting("x" * (MIB - 400))


@case("", 1)
def glob_of_1_mib() -> str:
    return selecting(f'{{glob: "{"x*" * 500_000}"}}')


@case("", 1)
def regex_of_1_mib() -> str:
    return regex("x*" * 500_000)


@case("SYN001", 1)
def key_of_1_mib() -> str:
    return CLEAN + "x" * (MIB - 400) + ": 1\n"


@case("SYN003", 1)
def quoted_key_of_1000() -> str:
    return CLEAN + f'"{"x" * 1_000}": 1\n' * 900


@case("SYN003", 1)
def explicit_key_of_1_mib() -> str:
    return CLEAN + "? " + "x" * (MIB - 400) + "\n: 1\n"


@case("SYN003", 1)
def explicit_keys_of_30_kb() -> str:
    return CLEAN + "".join(f"? {'clusterz' * 4_000}{n}\n: 1\n" for n in range(30))


@case()
def only_dashes() -> str:
    return "-" * MIB


@case("SYN001", 1)
def only_dashes_and_spaces() -> str:
    return "- " * (MIB // 2)


@case("empty", 2)
def only_hashes() -> str:
    return "#" * MIB


@case("empty", 2)
def only_newlines() -> str:
    return "\n" * MIB


@case()
def only_tabs() -> str:
    return "\t" * MIB


@case("empty", 2)
def only_spaces() -> str:
    return " " * MIB


@case()
def only_colons() -> str:
    return ":" * MIB


@case()
def only_colons_and_spaces() -> str:
    return ": " * (MIB // 2)


@case()
def only_commas() -> str:
    return "flows: [" + "," * 1_000_000


@case()
def only_quotes() -> str:
    return "'" * MIB


@case()
def only_percent() -> str:
    return "%" * MIB


@case("SYN001", 1)
def open_quote() -> str:
    return HEAD + 'note: "' + "x \n" * 300_000


@case("SYN006", 1)
def suppressions_many() -> str:
    return CLEAN + "# lint: ignore[SYN003] no reason at all\n" * 26_000


@case("SYN003", 1)
def suppressions_and_findings() -> str:
    return CLEAN + "".join(f"k{n}: 1 # lint: ignore[SYN003] because\n" for n in range(20_000)) + "last: 1\n"


@case("", 0, 1)
def suppression_with_a_huge_bracket() -> str:
    return CLEAN + "# lint: ignore[" + ",".join(f"SYN{n}" for n in range(110_000)) + "] reason\n"


@case("", 0, 1)
def suppression_with_a_huge_word() -> str:
    return CLEAN + "# lint: ignore[" + "S" * 1_000_000 + "] reason\n"


@case()
def suppression_never_closed() -> str:
    return CLEAN + " # lint: ignore[" * 60_000 + "\n"


@case()
def suppression_of_spaces() -> str:
    return CLEAN + "#" + " " * 500_000 + "lint:\n" + "# lint: ignore[X] r" + " " * 500_000 + "r\n"


# --- encodings ---


@case("zero bytes", 2)
def nul_bytes() -> bytes:
    return CLEAN.encode() + b"note: a\0b\n"


@case("", 2)
def only_nul() -> bytes:
    return b"\0" * 4096


@case("SYN001", 1)
def bell_and_backspace() -> bytes:
    return CLEAN.encode() + b"note: \x07\x08\x08\x08\n"


@case("SYN001", 1)
def delete_character() -> bytes:
    return CLEAN.encode() + b"note: \x7f\n"


@case("SYN001", 1)
def c1_controls() -> str:
    return CLEAN + "note: \x9b31mred\x9b0m \x90q\x9c\n"


@case("SYN001", 1)
def raw_escape_sequences() -> str:
    return CLEAN + "note: \x1b]0;title\x07\x1b[2J\x1b[31mred\n"


@case("SYN003", 1)
def escaped_escape_sequences() -> str:
    return CLEAN + '"\\e[2J\\e[31mred": 1\nkind2: "\\e]8;;http://example.invalid\\a"\n"\\u009b31m": x\n'


@case("SYN011", 1)
def escape_sequences_as_values() -> str:
    return CLEAN.replace("name: hostile", 'name: "\\e[31mred\\x9b0m\\x07"').replace("[orders]", '["\\e[2J"]')


@case("SYN001", 1)
def escaped_surrogate() -> str:
    return CLEAN + 'note: "\\ud800"\n'


@case()
def escaped_nul() -> str:
    return CLEAN.replace("name: hostile", 'name: "a\\0b"') + '"k\\0": 1\n'


@case("", 2)
def utf16_with_bom() -> bytes:
    return CLEAN.encode("utf-16")


@case("", 2)
def utf16_without_bom() -> bytes:
    return CLEAN.encode("utf-16-le")


@case("", 2)
def utf32_with_bom() -> bytes:
    return CLEAN.encode("utf-32")


@case("", 2)
def utf32_without_bom() -> bytes:
    return CLEAN.encode("utf-32-be")


@case("0 errors", 0)
def utf8_with_bom() -> bytes:
    return b"\xef\xbb\xbf" + CLEAN.encode()


@case()
def utf8_with_two_boms() -> bytes:
    return b"\xef\xbb\xbf" * 2 + CLEAN.encode()


@case()
def bom_in_the_middle() -> str:
    return CLEAN + "\ufeffnote: 1\n"


@case("not UTF-8", 2)
def latin_1() -> bytes:
    return CLEAN.replace("hostile", "münchen").encode("latin-1")


@case("not UTF-8", 2)
def overlong_utf8() -> bytes:
    return CLEAN.encode() + b"note: \xc0\xaf\xe0\x80\xaf\n"


@case("not UTF-8", 2)
def surrogates_in_utf8() -> bytes:
    return CLEAN.encode() + b"note: \xed\xa0\x80\n"


@case("not UTF-8", 2)
def cut_utf8() -> bytes:
    return CLEAN.encode() + "note: é".encode()[:-1]


@case("", 2)
def random_bytes() -> bytes:
    return random.Random(1).randbytes(500_000)


@case("SYN001", 1)
def noncharacters() -> str:
    return CLEAN + "note: \ufffe\uffff\n"


@case("0 errors", 0)
def carriage_return_and_line_feed() -> str:
    return CLEAN.replace("\n", "\r\n")


@case("0 errors", 0)
def carriage_return_alone() -> str:
    return CLEAN.replace("\n", "\r")


@case("9 | wrong: 1", 1)
def carriage_return_alone_and_a_finding() -> str:
    return (CLEAN + "wrong: 1\n").replace("\n", "\r")


@case("9 | wrong: 1", 1)
def mixed_line_ends() -> str:
    return CLEAN.replace("\n", "\r\n", 3).replace("\n  ", "\r  ") + "wrong: 1\n"


@case("", 2)
def another_kind_with_escape_sequences() -> str:
    return 'apiVersion: "\\e[2Jv1\\u202e"\nkind: "\\e[31m' + "Deployment" * 1_000 + '"\n'


@case("12 | wrong: 1", 1)
def other_line_breaks() -> str:
    """libyaml counts NEL, LS and PS as line breaks, so the wrong key stands in line 12; its frame must agree."""
    return CLEAN + "# a\x85# b\u2028# c\u2029wrong: 1\n"


@case("SYN001", 1)
def vertical_tab_and_form_feed() -> str:
    return CLEAN + "# a\x0bb\x0cc\x1cd\nwrong: 1\n"


@case("SYN011", 1)
def right_to_left_override() -> str:
    return CLEAN.replace("name: hostile", "name: \u202eelitsoh\u202c")


@case("SYN003", 1)
def zero_width_keys() -> str:
    return HEAD + CLUSTERS + FLOW.replace("flows", "fl\u200bows") + "\u2066kind\u2069: x\n"


@case("SYN003", 1)
def homoglyph_keys() -> str:
    return HEAD + CLUSTERS + FLOW.replace("flows", "fl\u043ews").replace("source", "s\u043eurce")


@case()
def combining_characters() -> str:
    return CLEAN + "note: a" + "\u0300" * 300_000 + "\n"


# --- patterns ---


@case("", 0, 1)
def regex_nested_plus() -> str:
    return regex("(a+)+b", "((a+)+)+c", "(a*)*d")


@case("", 0, 1)
def regex_ambiguous_alternatives() -> str:
    return regex("(a|a)*b", "(a|aa|aaa)*c", "(.*)*", "(.+)+x", "(.*.*.*.*.*.*)*y")


@case("SYN011", 1)
def regex_nested_repeats() -> str:
    return regex("((a{250}){250}){250}", "(((a{1,250}){1,250}){1,250}){1,250}")


@case("", 0, 1)
def regex_repeat_of_nothing() -> str:
    return regex("(((((){250}){250}){250}){250}){250}", "((()*)*)*", "(((|){250}){250}){250}")


@case("", 1)
def regex_repeat_never() -> str:
    return regex("((((((a{250}){250}){250}){0}){0}){0}){250}b")


@case("", 1)
def regex_huge_bound() -> str:
    return regex("a{" + "9" * 100_000 + "}", "a{1,99999999999999999999}", "b{0,}", "c{٣}")


@case("", 0, 1)
def regex_classes() -> str:
    ranges = "".join(f"{chr(low)}-{chr(low)}" for low in range(97, 123)) + "a-z" * 38
    return regex(*(f"[{ranges}]{{{n}}}" for n in range(1, 65)))


@case("", 0, 1)
def regex_class_of_the_whole_plane() -> str:
    return regex("[\u0001-\U0010ffff]".replace("\u0001", " "), "[" + "a-z" * 100_000 + "]")


@case("", 0, 1)
def regex_1000_alternatives() -> str:
    return regex("|".join(f"topic-{n}" for n in range(1_000)))


@case("", 1)
def regex_100000_alternatives() -> str:
    return regex("|".join("ab" for n in range(300_000)))


@case("", 1)
def regex_deep_groups() -> str:
    return regex("(" * 300 + "a" + ")" * 300)


@case("SYN011", 1)
def regex_very_deep_groups() -> str:
    return regex("(" * 100_000 + "a" + ")" * 100_000)


@case("", 1)
def regex_open_groups() -> str:
    return regex("(" * 500_000)


@case("", 0, 1)
def regex_groups_of_32() -> str:
    return regex("(" * 30 + "a" + ")*" * 30)


@case("", 0, 1)
def regex_exponential_determinisation() -> str:
    return regex("(a|b)*a(a|b){20}", "(a|b)*b(a|b){24}")


@case("", 0, 1)
def regex_exponential_product() -> str:
    return routes("{regex: '(a|b)*a(a|b){20}'}", "{regex: '(a|b)*b(a|b){20}c'}", "{regex: '(a|b|c)*a(a|b){19}'}")


@case("", 0, 1)
def regex_exponential_products_of_many() -> str:
    return routes(*(f"{{regex: '(a|b)*a(a|b){{{n}}}(c|d){{{n}}}'}}" for n in range(8, 40)))


@case("", 0, 1)
def regex_prime_lengths() -> str:
    primes = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)
    return routes(*(f"{{regex: '(a{{{n}}})+'}}" for n in primes))


@case("", 0, 1)
def regex_large_products() -> str:
    return routes(*(f"{{regex: '(a|b){{200}}(.*){{3}}[a-f]{{{n}}}x?'}}" for n in range(40, 60)))


@case("", 0, 1)
def globs_of_stars() -> str:
    return selecting(*(f'{{glob: "{"*" * 50}{n}{"*a" * 20}"}}' for n in range(100)))


@case("", 0, 1)
def globs_against_each_other() -> str:
    return routes(*(f'{{glob: "*{"a*b*" * 8}c{n}*"}}' for n in range(60)))


@case("", 0, 1)
def selectors_2000() -> str:
    return selecting(*(f'{{glob: "t{n}*x*"}}' for n in range(2_000)))


@case("", 0, 1)
def selectors_2000_with_excludes() -> str:
    inside = ", ".join(f'{{glob: "t{n}*"}}' for n in range(2_000))
    outside = ", ".join(f"{{regex: '.*[a-m]{{3}}{n}'}}" for n in range(2_000))
    return flows(f"{{source: a, target: b, topics: {{include: [{inside}], exclude: [{outside}]}}}}")


@case("", 0, 1)
def literals_20000() -> str:
    return selecting(*(f"topic-{n}" for n in range(20_000)))


@case("", 0, 1)
def literals_into_one_from_many() -> str:
    return routes(*(", ".join(f"topic-{n}-{m}" for m in range(200)) for n in range(60)))


@case("", 0, 1)
def stars_everywhere() -> str:
    clusters = "".join(f"  c{n}: {{bootstrap: ['k{n}:9092']}}\n" for n in range(1_000))
    ring = "".join(
        f"  - {{source: c{n}, target: c{(n + 1) % 1_000}, topics: {{include: [{{glob: '*'}}]}}}}\n"
        for n in range(1_000)
    )
    return HEAD + "clusters:\n" + clusters + "flows:\n" + ring


@case("", 0, 1)
def stars_from_one_to_all() -> str:
    clusters = "".join(f"  c{n}: {{bootstrap: ['k{n}:9092']}}\n" for n in range(1_001))
    star = "".join(f"  - {{source: c0, target: c{n}, topics: {{include: [{{glob: '*'}}]}}}}\n" for n in range(1, 1_001))
    return HEAD + "clusters:\n" + clusters + "flows:\n" + star


@case("", 0, 1)
def stars_from_all_to_one() -> str:
    return routes(*(["{glob: '*'}"] * 1_000))


@case("", 0, 1)
def mesh_of_1000() -> str:
    names = [f"c{n}" for n in range(1_000)]
    clusters = "".join(f"  {name}: {{bootstrap: ['{name}:9092']}}\n" for name in names)
    pattern = f"  active_active: {{via: direct, members: [{', '.join(names)}], topics: {{include: [{{glob: '*'}}]}}}}\n"
    return HEAD + "clusters:\n" + clusters + "pattern:\n" + pattern


@case("", 0, 1)
def mesh_of_100() -> str:
    names = [f"c{n}" for n in range(100)]
    clusters = "".join(f"  {name}: {{bootstrap: ['{name}:9092']}}\n" for name in names)
    pattern = f"  active_active: {{via: direct, members: [{', '.join(names)}], topics: {{include: [{{glob: '*'}}]}}}}\n"
    return HEAD + "clusters:\n" + clusters + "pattern:\n" + pattern


@case("", 0, 1)
def mesh_without_guards() -> str:
    names = [f"c{n}" for n in range(40)]
    clusters = "".join(f"  {name}: {{bootstrap: ['{name}:9092']}}\n" for name in names)
    settings = "provenance: {guard: none, forward: all}, topics: {include: [{glob: '*'}]}, naming: {policy: prefix}"
    pattern = f"  active_active: {{via: direct, members: [{', '.join(names)}], {settings}}}\n"
    return HEAD + "clusters:\n" + clusters + "pattern:\n" + pattern


@case("", 0, 1)
def product_of_spokes() -> str:
    """30,000 names of clusters that nobody declared, in a pattern that multiplies them."""
    names = ", ".join(f"c{n}" for n in range(15_000))
    pattern = (
        f"  active_active: {{via: aggregate, regionals: [{names}], aggregates: [{names}], topics: {{include: [x]}}}}\n"
    )
    return HEAD + CLUSTERS + "pattern:\n" + pattern


@case("", 0, 1)
def same_spoke_often() -> str:
    names = ", ".join(["b"] * 100_000)
    return HEAD + CLUSTERS + f"pattern:\n  aggregation: {{sources: [{names}], target: a, topics: {{include: [x]}}}}\n"


@case("", 0, 1)
def chain_of_1000() -> str:
    names = [f"c{n}" for n in range(1_000)]
    clusters = "".join(f"  {name}: {{bootstrap: ['{name}:9092']}}\n" for name in names)
    path = (
        f"  chain: {{path: [{', '.join(names)}], naming: {{policy: prefix}}, topics: {{include: [{{glob: '*'}}]}}}}\n"
    )
    return HEAD + "clusters:\n" + clusters + "pattern:\n" + path


@case("", 0, 1)
def names_at_the_limits() -> str:
    long, topic = "n" * 80, "t" * 249
    text = CLEAN.replace("hostile", long).replace("orders", topic).replace("{source", f"{{suffix: {long}, source")
    return (
        text.replace("  a:", f"  {'c' * 40}:", 1)
        + f"defaults: {{naming: {{policy: template, template: '{topic}-{{topic}}'}}}}\n"
    )


@case("", 1)
def names_beyond_the_limits() -> str:
    return CLEAN.replace("hostile", "n" * 81).replace("orders", "t" * 250).replace("  a:", f"  {'c' * 41}:", 1)


@case("", 0, 1)
def template_with_many_placeholders() -> str:
    return CLEAN + f"defaults: {{naming: {{policy: template, template: '{'{source}{target}' * 50_000}{{topic}}'}}}}\n"


@case("NAM305", 1)
def template_with_many_topics() -> str:
    return CLEAN + f"defaults: {{naming: {{policy: template, template: '{'{topic}' * 100_000}'}}}}\n"


@case("", 0, 1)
def rename_map_of_20000() -> str:
    renames = ", ".join(f"t{n}: u{n}" for n in range(20_000))
    return CLEAN + f"defaults: {{naming: {{policy: map, map: {{{renames}}}}}}}\n"


@case("", 1)
def rename_map_to_one_name() -> str:
    renames = ", ".join(f"t{n}: u" for n in range(20_000))
    return CLEAN + f"defaults: {{naming: {{policy: map, map: {{{renames}}}}}}}\n"


@case("", 0, 1)
def waves_in_a_circle() -> str:
    waves = "".join(f"  - {{name: w{n}, after: [w{(n + 1) % 3_000}], topics: [t{n}]}}\n" for n in range(3_000))
    return CLEAN + "migration:\n  flow: a-to-b\n  waves:\n" + "".join(f"  {line}\n" for line in waves.splitlines())


@case("", 0, 1)
def waves_after_all_others() -> str:
    names = [f"w{n}" for n in range(300)]
    waves = "".join(f"    - {{name: {name}, after: [{', '.join(names)}], topics: [{name}]}}\n" for name in names)
    return CLEAN + "migration:\n  flow: a-to-b\n  waves:\n" + waves


@case("", 0, 1)
def flows_with_one_id() -> str:
    return flows(*(["{source: a, target: b, topics: {include: [orders]}}"] * 8_000))


@case("", 0, 1)
def flows_to_themselves() -> str:
    return flows(*(f"{{source: a, target: a, suffix: x{n}, topics: {{include: [o{n}]}}}}" for n in range(5_000)))


@case("", 0, 1)
def flows_between_undeclared_clusters() -> str:
    return flows(*(f"{{source: x{n}, target: y{n}, topics: {{include: [o]}}}}" for n in range(8_000)))


@case("", 0, 1)
def flows_side_by_side() -> str:
    return flows(*(f"{{source: a, target: b, suffix: x{n}, topics: {{include: [o]}}}}" for n in range(3_000)))


# --- numbers ---


@case("SYN", 1)
def number_of_1_mb_digits() -> str:
    return flows(f"{{source: a, target: b, topics: {{include: [x]}}, workers: {{count: {'9' * 1_000_000}}}}}")


@case("SYN", 1)
def durations_of_1_mb_digits() -> str:
    workers = f"workers: {{discovery: {'9' * 300_000}s, quota: {'9' * 300_000}.{'9' * 100_000}MiB/s}}"
    return flows(f"{{source: a, target: b, topics: {{include: [x]}}, {workers}}}")


@case("SYN", 1)
def share_of_1_mb_digits() -> str:
    return CLEAN + f"defaults: {{slo: {{rpo: {'1' * 5_000}d}}, verify: {{every: 0.{'0' * 300_000}1ms}}}}\n"
