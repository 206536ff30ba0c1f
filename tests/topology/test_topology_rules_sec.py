"""SEC rules beyond their manuals' examples: border cases, what is silent, and that no report shows a secret."""

from __future__ import annotations

import pytest

from watershed.topology.finding import LintFinding
from watershed.topology.inventory import Inventory
from watershed.topology.lint import LintResult, lint_topology
from watershed.topology.loader import parse_topology
from watershed.topology.reports import render_lint_report
from watershed.topology.rule_manual import build_example_inventory, complete_example

FORMATS = ("text", "concise", "json", "github", "sarif", "junit")
FLOW = "flows:\n  - {source: a, target: b, topics: {include: [orders]}}\n"
HIDDEN = "Tr0ub4dor3xyzQ9kLm"


def linted(example: str, *, live: bool = False) -> LintResult:
    inventory: Inventory | None = build_example_inventory(example, live=live)
    return lint_topology(parse_topology(complete_example(example)), inventory)


def found(example: str, code: str, *, live: bool = False) -> list[LintFinding]:
    return [finding for finding in linted(example, live=live).findings if finding.rule == code]


def clusters(**aliases: str) -> str:
    return "clusters:\n" + "".join(f"  {alias}: {{{text}}}\n" for alias, text in aliases.items())


def security(text: str) -> str:
    return clusters(a="bootstrap: [k1.a.example.internal:9093], security: {protocol: SASL_SSL, " + text + "}")


# --- SEC601

SECRETS = {
    "password": security(f"password: {HIDDEN}"),
    "quoted": security(f'password: "{HIDDEN}"'),
    "number": security("password: 8675309"),
    "client secret": security(f"client.secret: {HIDDEN}"),
    "key password": security(f"ssl.key.password: {HIDDEN}"),
    "api key": security(f"api_key: {HIDDEN}"),
    "jaas": security(
        "sasl.jaas.config: 'org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="app" password="{HIDDEN}";\''
    ),
    "jaas under another key": security(f"note: 'PlainLoginModule required username=x {HIDDEN}'"),
    "address": clusters(a=f"bootstrap: ['app:{HIDDEN}@k1.a.example.internal:9093']"),
    "plain address": clusters(a=f"bootstrap: [app:{HIDDEN}@k1.a.example.internal:9093]"),
    "url": clusters(
        a=f"bootstrap: [k1.a.example.internal:9093], schema_registry: {{url: 'https://app:{HIDDEN}@sr.example.internal'}}"
    ),
    "user info": clusters(
        a=f"bootstrap: [k1.a.example.internal:9093], schema_registry: {{basic.auth.user.info: 'app:{HIDDEN}'}}"
    ),
    "pem": "clusters:\n  a:\n    bootstrap: [k1.a.example.internal:9093]\n    security:\n      protocol: SSL\n"
    f"      key: |\n        -----BEGIN PRIVATE KEY-----\n        {HIDDEN}\n        -----END PRIVATE KEY-----\n",
    "pem on one line": security(f'key: "-----BEGIN PRIVATE KEY-----\\n{HIDDEN}"'),
    "application": f"migration: {{flow: f, applications: {{app: {{http: 'http://x:{HIDDEN}@app:1'}}}}, waves: []}}\n",
    "several": security(f"passwords: [{HIDDEN}]"),
    "short word": security(f"pass: {HIDDEN}"),
    "url in a sentence": f"metadata: {{name: x, description: 'see https://app:{HIDDEN}@sr.example.internal'}}\n",
    "basic": security(f"header: 'Basic YXBw{HIDDEN}=='"),
    "bearer": security(f"header: 'Bearer {HIDDEN}'"),
    "aws": security("user: AKIAIOSFODNN7EXAMPLE"),
    "under credentials": security(f"credentials: {HIDDEN}"),
    "env with a value": security(f"credentials: {{env: '{HIDDEN}'}}"),
    "env with an assignment": security(f"credentials: {{env: 'KAFKA_A={HIDDEN}'}}"),
    "env with spaces": security(f"credentials: {{env: 'correct horse {HIDDEN}'}}"),
    "connection with a value": security(f"credentials: {{airflow_connection: 'kafka://app:{HIDDEN}@k1'}}"),
    "topic config": FLOW.replace("}}", f"}}, sync: {{configs: {{set: {{ssl.truststore.password: {HIDDEN}}}}}}}}}", 1),
    "description": f"metadata: {{name: x, description: 'the password={HIDDEN} is old'}}\n",
}


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_a_secret_is_found_and_never_shown(name: str) -> None:
    result = linted(SECRETS[name])
    [finding] = [each for each in result.findings if each.rule == "SEC601"]
    assert finding.severity == "error"
    assert finding.span.end_column == finding.span.column + 1, "the end of the span would say how long the secret is"
    for form in FORMATS:
        shown = render_lint_report([result], form)
        for hidden in (HIDDEN, "8675309", "AKIAIOSFODNN7EXAMPLE"):
            assert hidden not in shown, form


NO_SECRETS = {
    "references": security("credentials: {env: KAFKA_A}, ca: {file: /etc/kafka/ca.pem}, key: {file: client.key}"),
    "connection": security("credentials: {airflow_connection: kafka_use1}"),
    "variable in lower case": security("credentials: {env: kafka_a_2}"),
    "empty": security("password: null"),
    "switch": security("password: false"),
    "interpolation": security('password: "${KAFKA_PASSWORD}"'),
    "topics called so": "flows:\n  - source: a\n    target: b\n    topics: {include: [user-token]}\n"
    "    naming: {policy: map, map: {user-token: user-secret}}\n",
    "label": "metadata: {name: x, labels: {env: 'prod eu', file: 'a b'}}\n",
    "description": "metadata: {name: x, description: 'Basic flow; ask a@b for the password: it is in the vault'}\n",
    "mail": "metadata: {name: x, owner: 'mail:team@example.org', description: 'ask irc:bob@example.org'}\n",
    "sentence": "metadata: {name: x, description: 'Basic infrastructure-monitoring, Bearer of-responsibilities'}\n",
    "mail of a cluster": clusters(a="bootstrap: [k1.a.example.internal:9093], owner: 'mailto:team@example.org'"),
    "camel case": security("credentials: {env: kafkaPassword1}"),
    "classified": clusters(a="bootstrap: [k1.a.example.internal:9093], topics: [{match: t, classification: secret}]"),
    "long name": FLOW.replace("orders", "customer-orders-created-by-the-web-frontend-of-2026"),
}


@pytest.mark.parametrize("name", sorted(NO_SECRETS))
def test_what_is_no_secret(name: str) -> None:
    assert found(NO_SECRETS[name], "SEC601") == []


def test_a_secret_beside_another_finding_is_hidden_there_too() -> None:
    result = linted(security(f"passphrase: {HIDDEN}, mechanism: PLAIM"))
    assert {"SEC601", "SYN003", "SYN011"} <= {finding.rule for finding in result.findings}
    assert all(HIDDEN not in render_lint_report([result], form) for form in FORMATS)


def test_a_secret_cannot_be_silenced() -> None:
    text = security(f"password: {HIDDEN}").rstrip() + " # lint: ignore[SEC601] a test account\n"
    assert len(found(text, "SEC601")) == 1


def test_a_secret_in_a_key_is_not_part_of_the_path() -> None:
    [finding] = found(clusters(a=f"'password={HIDDEN}': x, bootstrap: [k1.a.example.internal:9093]"), "SEC601")
    assert finding.path == "clusters.a.…"


# --- SEC602, SEC603


def sasl(mechanism: str, address: str = "k1.a.example.internal:9092") -> str:
    return clusters(
        a=f"bootstrap: ['{address}'], region: r1, security: {{protocol: SASL_PLAINTEXT, mechanism: {mechanism}}}",
        b="bootstrap: [k1.b.example.internal:9093], region: REGION, security: {protocol: SSL}",
    )


@pytest.mark.parametrize(
    ("mechanism", "region", "severities"),
    [
        ("PLAIN", "r1", ["error"]),
        ("PLAIN", "r2", ["error"]),
        ("OAUTHBEARER", "r1", ["error"]),
        ("SCRAM-SHA-512", "r1", ["warning"]),
        ("SCRAM-SHA-256", "r2", ["error"]),
        ("GSSAPI", "r2", []),
    ],
)
def test_sasl_without_tls(mechanism: str, region: str, severities: list[str]) -> None:
    text = sasl(mechanism).replace("REGION", region) + FLOW
    assert [finding.severity for finding in found(text, "SEC602")] == severities


@pytest.mark.parametrize("address", ["127.0.0.1:9092", "localhost:9092", "[::1]:9092", "127.1.2.3:9092"])
def test_this_machine_is_not_a_network(address: str) -> None:
    text = sasl("PLAIN", address).replace("REGION", "r2") + FLOW
    assert found(text, "SEC602") == []
    assert found(text.replace("SASL_PLAINTEXT, mechanism: PLAIN", "PLAINTEXT"), "SEC603") == []


@pytest.mark.parametrize(
    ("registry", "severities"),
    [
        ('{url: "http://registry.a.example.internal:8081", credentials: {env: R}}', ["error"]),
        ('{url: "https://registry.a.example.internal", credentials: {env: R}}', []),
        ('{url: "http://registry.a.example.internal:8081"}', []),
        ('{url: "http://127.0.0.1:8081", credentials: {env: R}}', []),
    ],
)
def test_the_password_of_a_registry_without_tls(registry: str, severities: list[str]) -> None:
    text = ends(f"bootstrap: ['127.0.0.1:1'], schema_registry: {registry}", "bootstrap: ['127.0.0.1:2']")
    assert [finding.severity for finding in found(text, "SEC602")] == severities


def ends(one: str, two: str) -> str:
    return clusters(a=one, b=two) + FLOW


@pytest.mark.parametrize(
    ("one", "two", "aliases"),
    [
        # a region that is not declared is not known
        ("bootstrap: [k1.onprem.example.internal:9092], region: r1", "bootstrap: [k1.cloud.example.internal:9092]", []),
        (
            "bootstrap: [k1.a.example.internal:9092], region: r1",
            "bootstrap: [k1.b.example.internal:9092], region: r1",
            [],
        ),
        (
            "bootstrap: [k1.a.example.internal:9092], region: r1",
            "bootstrap: [k1.b.example.internal:9092], region: r2",
            ["a", "b"],
        ),
        (
            "bootstrap: [k1.a.example.internal:9092], regions: [r1, r2]",
            "bootstrap: [k1.b.example.internal:9092], region: r2",
            [],
        ),
        ("bootstrap: [k1.example.internal:9092]", "bootstrap: [k1.example.org:9093], security: {protocol: SSL}", ["a"]),
        ("bootstrap: ['10.0.0.1:9092']", "bootstrap: ['10.9.0.1:9092']", []),
        ("bootstrap: [kafka-a:9092]", "bootstrap: [kafka-b:9092]", []),
    ],
)
def test_plaintext_between_sites(one: str, two: str, aliases: list[str]) -> None:
    assert [finding.ids[0] for finding in found(ends(one, two), "SEC603")] == aliases


@pytest.mark.parametrize(
    ("one", "two", "aliases"),
    [
        ("k1.orders.svc:9092", "k1.payments.svc:9092", []),
        ("k1.orders.svc.cluster.local:9092", "k1.orders.svc.clusterset.local:9092", []),
        ("k1.orders:9092", "k1.payments:9092", []),
        ("k1.lab:9092", "k2.lab:9092", []),
        ("k1.a.example.internal:9092", "k1.a.example.org:9092", ["a", "b"]),
    ],
)
def test_name_spaces_and_names_of_two_labels_are_no_sites(one: str, two: str, aliases: list[str]) -> None:
    text = ends(f"bootstrap: ['{one}']", f"bootstrap: ['{two}']")
    assert [finding.ids[0] for finding in found(text, "SEC603")] == aliases


def test_a_region_that_both_say_decides_whatever_their_names_are() -> None:
    same = ends("bootstrap: [k1.a.x.internal:9092], region: r1", "bootstrap: [k1.b.y.org:9092], region: r1")
    assert found(same, "SEC603") == []
    apart = ends("bootstrap: [k1.orders.svc:9092], region: r1", "bootstrap: [k1.pay.svc:9092], region: r2")
    assert [finding.ids[0] for finding in found(apart, "SEC603")] == ["a", "b"]


# --- SEC612


@pytest.mark.parametrize(
    ("ca", "certificate", "count"),
    [
        ("{file: /s.jks}", "{file: /s.jks}", 1),
        ("{file: /t.jks}", "{file: /s.jks}", 0),
        ("{env: STORE}", "{env: STORE}", 1),
        ("{env: STORE}", "{file: STORE}", 0),
    ],
)
def test_a_trust_store_that_is_the_key_store(ca: str, certificate: str, count: int) -> None:
    stores = f"protocol: SSL, ca: {ca}, certificate: {certificate}"
    if count == 0 or "jks" in ca:
        stores += ", ca_password: {env: P}, certificate_password: {env: Q}"
    text = ends(f"bootstrap: [k1.a.example.internal:9093], security: {{{stores}}}", "bootstrap: [k1.b:9092]")
    assert len(found(text, "SEC612")) == count


# --- SEC613


@pytest.mark.parametrize(
    ("there", "back", "says"),
    [
        ("acls: {mode: continuous, prune: auto}", "", ""),
        ("users: {mode: once, prune: approve}", "", ""),
        ("users: {prune: approve}", "", "`sync.users.mode` is `never`"),
        (
            "acls: {mode: once, prune: auto}",
            "acls: {mode: continuous}",
            "b-to-a gives a right that is revoked at a back",
        ),
        ("acls: {mode: once, prune: auto}", "acls: {mode: once}", ""),
    ],
)
def test_pruning_that_removes_nothing(there: str, back: str, says: str) -> None:
    text = (
        f"flows:\n  - {{source: a, target: b, topics: {{include: [x]}}, sync: {{{there}}}}}\n"
        f"  - {{source: b, target: a, topics: {{include: [other]}}, sync: {{{back}}}}}\n"
    )
    problems = found(text, "SEC613")
    assert [says in each.message for each in problems] == ([True] if says else [])


# --- SEC614, SEC615

GUARDED = (
    "bootstrap: [k1.b.example.internal:9093], security: {protocol: SASL_SSL, mechanism: PLAIN, credentials: {env: B}}"
)
PLAIN = "bootstrap: [k1.a.example.internal:9093]"


@pytest.mark.parametrize(
    ("more", "back", "says"),
    [
        ("", "", []),
        ("merge: {allowed: true}", "", ["`merge.allowed` says that others write to them"]),
        ("sync: {acls: {mode: once, include_write: always}}", "", ["gives applications the right to write there"]),
        ("", "{source: b, target: a, topics: {include: [orders]}}", ["b-to-a runs and carries back"]),
        ("", "{source: b, target: a, topics: {include: [orders]}, state: paused}", []),
        ("", "{source: b, target: a, topics: {include: [other]}}", []),
        ("state: paused", "{source: b, target: a, topics: {include: [orders]}}", ["it is the way back of b-to-a"]),
    ],
)
def test_what_contradicts_protection(more: str, back: str, says: list[str]) -> None:
    flow = ", ".join(filter(None, ("source: a, target: b, topics: {include: [orders]}, protect: true", more)))
    text = clusters(a=PLAIN, b=GUARDED) + f"flows:\n  - {{{flow}}}\n" + (f"  - {back}\n" if back else "")
    messages = [each.message for each in found(text, "SEC614")]
    assert len(messages) == len(says)
    assert all(one in message for one, message in zip(says, messages, strict=True))


@pytest.mark.parametrize(
    ("target", "scan", "says"),
    [
        (PLAIN.replace("a", "b"), "", "everybody is anonymous at b"),
        (GUARDED, "", ""),
        (GUARDED, "b: {configs: {allow.everyone.if.no.acl.found: 'true'}}", "allow.everyone.if.no.acl.found=true"),
        (GUARDED, "b: {configs: {authorizer.class.name: ''}}", "b has no authorizer"),
    ],
)
def test_a_target_that_cannot_protect(target: str, scan: str, says: str) -> None:
    flow = "flows:\n  - {source: a, target: b, topics: {include: [orders]}, protect: true}\n"
    text = clusters(a=PLAIN, b=target) + flow + (f"--- # topology scan\n{scan}\n" if scan else "")
    problems = found(text, "SEC615")
    assert [says in each.message for each in problems] == ([True] if says else [])


# --- SEC604 to SEC606


@pytest.mark.parametrize(
    "text",
    [
        "verify: false",
        "insecure_skip_verify: true",
        "tls_skip_verify: yes",
        "ssl.endpoint.identification.algorithm: none",
        "enable.ssl.certificate.verification: false",
        "insecure: 'true'",
        'ssl.endpoint.identification.algorithm: ""',
    ],
)
def test_attempts_to_switch_verification_off(text: str) -> None:
    assert len(found(security(text), "SEC604")) == 1


@pytest.mark.parametrize("text", ["verify: true", "insecure: false", "ssl.endpoint.identification.algorithm: https"])
def test_verification_that_stays_on(text: str) -> None:
    assert found(security(text), "SEC604") == []


def test_a_flow_that_is_not_proven_is_no_matter_of_tls() -> None:
    assert found(FLOW.replace("}}", "}, verify: false}"), "SEC604") == []


def test_a_shared_authority_is_no_shared_credential() -> None:
    one = "security: {protocol: SSL, ca: {file: ca.pem}, certificate: {file: NAME.pem}, key: {file: KEY}}"
    both = [f"bootstrap: [k1.{alias}.example.internal:9093], {one.replace('NAME', alias)}" for alias in "ab"]
    assert found(clusters(a=both[0].replace("KEY", "a.key"), b=both[1].replace("KEY", "b.key")), "SEC605") == []
    [finding] = found(clusters(a=both[0].replace("KEY", "one.key"), b=both[1].replace("KEY", "one.key")), "SEC605")
    assert finding.ids == ("file", "a", "b")
    assert "one.key" not in finding.message


@pytest.mark.parametrize("text", ["${REGION}", "a-${B}", "$(region)", "{{ region }}", "<%= region %>"])
def test_interpolation(text: str) -> None:
    [finding] = found(clusters(a=f'bootstrap: [k1.a.example.internal:9093], region: "{text}"'), "SEC606")
    assert finding.path == "clusters.a.region"


def test_a_template_is_no_interpolation() -> None:
    naming = 'naming: {policy: template, template: "{topic}.from.{source}"}'
    assert found(f"flows:\n  - {{source: a, target: b, topics: {{include: [orders]}}, {naming}}}\n", "SEC606") == []


# --- SEC607, SEC611


def acl(operation: str, name: str = "orders", pattern: str = "LITERAL", user: str = "m", **more: str) -> str:
    said = {"permission": "ALLOW", "resource": "TOPIC"} | more
    return (
        f'{{principal: "User:{user}", operation: {operation}, permission: {said["permission"]}, '
        f'resource: {said["resource"]}, name: "{name}", pattern: {pattern}}}'
    )


def scan(alias: str, *acls: str, topics: str = "{}") -> str:
    return f"--- # topology scan\n{alias}:\n  topics: {topics}\n  acls: [{', '.join(acls)}]\n"


SOURCE = (acl("READ"), acl("DESCRIBE_CONFIGS"))
TARGET = (acl("WRITE"), acl("CREATE", "kafka-cluster", resource="CLUSTER"), acl("ALL", "watershed.", "PREFIXED"))


@pytest.mark.parametrize(
    ("shown", "missing"),
    [
        (scan("a", *SOURCE), ""),
        (scan("a", SOURCE[0]), "DESCRIBE_CONFIGS orders"),
        (scan("a", *SOURCE, acl("READ", permission="DENY")), "READ orders"),
        (scan("a", *SOURCE, acl("READ", "*", user="*", permission="DENY")), "READ orders"),
        (scan("a", acl("ALL", "ord", "PREFIXED")), ""),
        (scan("a", acl("READ", "*"), acl("DESCRIBE_CONFIGS", "*", user="*")), ""),
        # two users with one half each are not one with both
        (scan("a", SOURCE[0], acl("DESCRIBE_CONFIGS", user="n")), "lacks"),
        (scan("a"), "no user has any right"),
        (scan("a").replace("acls: []", "acls: []\n  configs: {allow.everyone.if.no.acl.found: 'true'}"), ""),
        (scan("a").replace("  acls: []\n", ""), ""),
        (scan("b", *TARGET), ""),
        (scan("b", *TARGET[:2]), "READ watershed.*"),
        (scan("b", TARGET[0], TARGET[2]), "CREATE orders"),
        (scan("b", TARGET[0], TARGET[2], topics="{orders: {}}"), ""),
    ],
)
def test_rights_of_the_workers(shown: str, missing: str) -> None:
    findings = found(FLOW + shown, "SEC611", live=True)
    assert [missing in finding.notes[0] for finding in findings] == [True] * bool(missing)


def test_a_wide_user_beside_a_narrow_one_is_no_worker() -> None:
    assert len(found(FLOW + scan("a", acl("ALL", "*", user="admin")), "SEC607")) == 1
    assert len(found(FLOW + scan("a", acl("ALL", "kafka-cluster", resource="CLUSTER")), "SEC607")) == 1
    assert found(FLOW + scan("a", acl("ALL", "*", user="admin"), *SOURCE), "SEC607") == []


# --- SEC608, SEC609


def labelled(fact: str, one: str = "eu", two: str = "eu", three: str = "us", key: str = "residency") -> str:
    return clusters(
        a=f"bootstrap: [k1.a.example.internal:9093], {key}: {one}, topics: [{fact}]",
        b=f"bootstrap: [k1.b.example.internal:9093], {key}: {two}",
        c=f"bootstrap: [k1.c.example.internal:9093], {key}: {three}",
    )


CHAIN = """flows:
  - {source: a, target: b, topics: {include: [{glob: "orders.*"}]}, naming: {policy: prefix}}
  - {source: b, target: c, topics: {include: [{glob: "*.paid"}]}, provenance: {forward: all}}
"""


@pytest.mark.parametrize(
    ("fact", "flows"),
    [
        ("{match: orders.paid, residency: eu}", ["b-to-c"]),
        ("{match: orders.paid, residency: EU}", ["b-to-c"]),
        ('{match: {glob: "orders.*"}, residency: eu}', ["b-to-c"]),
        ("{match: orders.sent, residency: eu}", []),
        ("{match: orders.paid, residency: us}", ["a-to-b"]),
        ("{match: orders.paid}, {match: {glob: '*.paid'}, residency: eu}", ["b-to-c"]),
        ("{match: {glob: '*.paid'}}, {match: orders.paid, residency: eu}", []),
    ],
)
def test_residency_over_several_hops(fact: str, flows: list[str]) -> None:
    assert [finding.ids[0] for finding in found(labelled(fact) + CHAIN, "SEC608")] == flows


def test_many_labels_over_one_flow_are_one_finding() -> None:
    facts = ", ".join(f"{{match: orders.{name}, residency: eu}}" for name in ("a", "b", "c", "d", "paid"))
    [finding] = found(labelled(facts, two="us") + CHAIN, "SEC608")
    assert "carries `orders.a`, `orders.b` and 3 more, which must stay in eu, to b in us" in finding.message


def test_a_hub_gives_what_a_spoke_brought_to_all_others() -> None:
    aliases = [f"s{number}" for number in range(20)]
    text = clusters(
        hub="bootstrap: [k1.hub.example.internal:9093]",
        s0="bootstrap: [k1.s0.example.internal:9093], owner: shop, topics: [{match: people, classification: pii}]",
        **{alias: f"bootstrap: [k1.{alias}.example.internal:9093], owner: bank" for alias in aliases[1:]},
    )
    text += f"pattern:\n  hub_and_spoke:\n    hub: hub\n    spokes: [{', '.join(aliases)}]\n"
    text += "    up: {topics: {include: [people]}}\n    down: {topics: {include: [people]}}\n"
    findings = found(text, "SEC609")
    assert sorted(finding.ids[0] for finding in findings) == sorted(f"hub-to-{alias}" for alias in aliases[1:])
    assert "(by way of s0 -> hub -> s1)" in findings[0].message


def test_what_another_flow_brought_does_not_travel_on_with_forward_local() -> None:
    text = labelled("{match: orders.paid, residency: eu}") + CHAIN.replace("forward: all", "forward: local")
    assert found(text, "SEC608") == []


def test_classified_topics_between_owners() -> None:
    said = labelled("{match: orders.paid, classification: pii}", "shop", "shop", "bank", key="owner")
    assert [finding.ids[0] for finding in found(said + CHAIN, "SEC609")] == ["b-to-c"]
    assert found(said.replace("pii", "public") + CHAIN, "SEC609") == []
    assert found(said.replace("owner: bank", "region: r") + CHAIN, "SEC609") == []
