"""`clusters.<alias>.security`: what OAUTHBEARER and GSSAPI need, in the file, in the plan, and out of other formats."""

from __future__ import annotations

import json

import pytest

from watershed.topology.finding import LintFinding
from watershed.topology.interop.import_formats import import_text
from watershed.topology.lint import lint_topology
from watershed.topology.loader import parse_topology
from watershed.topology.plan import Plan, PlanKerberos, PlanOAuth, PlanSecurity, decode_plan, encode_plan
from watershed.topology.plan_builder import build_plan
from watershed.topology.secret_ref import SecretRef

HEAD = "apiVersion: topology/v1alpha1\nkind: Topology\nmetadata: {name: x}\n"
OAUTH = "{protocol: SASL_SSL, mechanism: OAUTHBEARER, credentials: {env: A}, oauth: {token_endpoint: 'ENDPOINT'}}"
REST = """  b: {bootstrap: [k1.b.example.internal:9093], security: {protocol: SSL}}
flows:
  - {id: a-to-b, source: a, target: b, topics: {include: [t]}, naming: {policy: prefix}}
"""


def text(security: str) -> str:
    return HEAD + f"clusters:\n  a: {{bootstrap: [k1.a.example.internal:9093], security: {security}}}\n" + REST


def found(security: str, code: str) -> list[LintFinding]:
    findings = lint_topology(parse_topology(text(security), "x.yaml")).findings
    return [finding for finding in findings if finding.rule == code]


def planned(security: str) -> Plan:
    topology = parse_topology(text(security), "x.yaml").topology
    assert topology is not None
    return build_plan(topology, {})


@pytest.mark.parametrize(
    ("endpoint", "errors"),
    [
        ("https://id.example.internal/token", 0),
        ("http://id.example.internal/token", 1),
        ("http://127.0.0.1:8080/token", 0),
        ("http://[::1]:8080/token", 0),
        ("http://127.0.0.1.example.internal/token", 1),
        ("http://[::1/token", 1),
    ],
)
def test_a_token_endpoint_is_https_or_on_this_machine(endpoint: str, errors: int) -> None:
    assert len(found(OAUTH.replace("ENDPOINT", endpoint), "SEC602")) == errors


@pytest.mark.parametrize(
    ("endpoint", "credentials", "errors"),
    [
        ("http://169.254.169.254/metadata", "", 0),
        ("http://metadata.google.internal", "", 0),
        ("http://metadata.google.internal", "credentials: {env: A}, ", 1),
        ("http://imds.example.internal/metadata", "", 1),
    ],
)
def test_a_metadata_server_is_asked_without_tls_and_without_a_secret(
    endpoint: str, credentials: str, errors: int
) -> None:
    security = f"{{protocol: SASL_SSL, mechanism: OAUTHBEARER, provider: azure, {credentials}oauth: {{token_endpoint: "
    assert len(found(f"{security}'{endpoint}'}}}}", "SEC602")) == errors


@pytest.mark.parametrize(
    ("security", "code", "said"),
    [
        ("{protocol: SASL_SSL, mechanism: OAUTHBEARER, credentials: {env: A}}", "SYN012", "OAUTHBEARER needs `oauth`"),
        ("{protocol: SASL_SSL, mechanism: OAUTHBEARER, credentials: {env: A}, oauth: {}}", "SYN012", "token_endpoint"),
        (
            "{protocol: SASL_SSL, mechanism: PLAIN, credentials: {env: A}, kerberos: {}}",
            "SYN009",
            "`kerberos` goes with `mechanism: GSSAPI`",
        ),
        ("{protocol: SSL, oauth: {token_endpoint: 'https://i'}}", "SYN009", "`oauth` goes with"),
        ("{protocol: SASL_SSL, mechanism: PLAIN, credentials: {env: A}, provider: file}", "SYN009", "`provider` goes"),
        ("{protocol: SASL_SSL, mechanism: OAUTHBEARER, provider: file}", "SYN012", "the path of the token's file"),
        (
            "{protocol: SASL_SSL, mechanism: OAUTHBEARER, provider: file, credentials: {file: t}, oauth: {scope: x}}",
            "SYN009",
            "oauth.scope` means nothing to provider file; it takes extensions",
        ),
        ("{protocol: SSL, ca_password: {env: A}}", "SYN009", "`ca_password` opens a key store, and there is no `ca`"),
        ("{protocol: SSL, certificate_password: {env: A}}", "SYN009", "there is no `certificate`"),
        ("{protocol: SASL_SSL, mechanism: OAUTHBEARER, provider: aws_msk_iam}", "SYN012", "needs `oauth`"),
        (
            "{protocol: SASL_SSL, mechanism: OAUTHBEARER, provider: aws_msk_iam, oauth: {}}",
            "SYN012",
            "no `region`, which provider aws_msk_iam needs",
        ),
        (
            "{protocol: SASL_SSL, mechanism: OAUTHBEARER, provider: aws_msk_iam, oauth: {region: frankfurt}}",
            "SYN011",
            "such as eu-central-1",
        ),
        (
            "{protocol: SASL_SSL, mechanism: OAUTHBEARER, provider: aws_msk_iam, credentials: {env: A}, "
            "align_credentials: {env: B}, oauth: {region: eu-central-1, role: 'arn:aws:iam::123456789012:role/x'}}",
            "SYN009",
            "align_credentials` names no account of its own: both access keys assume `oauth.role`",
        ),
        (
            "{protocol: SASL_SSL, mechanism: OAUTHBEARER, provider: azure, credentials: {env: A}}",
            "SYN012",
            "provider azure with `credentials` needs `oauth.tenant`",
        ),
        (
            "{protocol: SASL_SSL, mechanism: OAUTHBEARER, provider: google, oauth: {region: eu-central-1}}",
            "SYN009",
            "oauth.region` means nothing to provider google",
        ),
        (
            "{protocol: SASL_SSL, mechanism: OAUTHBEARER, provider: filee, credentials: {file: t}}",
            "SYN011",
            "did you mean `file`?",
        ),
    ],
)
def test_what_does_not_go_together(security: str, code: str, said: str) -> None:
    [finding] = found(security, code)
    assert said in finding.message


@pytest.mark.parametrize(
    ("security", "expected"),
    [
        (
            "{protocol: SASL_SSL, mechanism: OAUTHBEARER, credentials: {env: A}, oauth: {token_endpoint: "
            "'https://i/t', scope: kafka, extensions: {logicalCluster: lkc-1, a: b}, ca: {file: /etc/ca.pem}}}",
            PlanSecurity(
                "SASL_SSL",
                "OAUTHBEARER",
                SecretRef("env", "A"),
                oauth=PlanOAuth(
                    "https://i/t", "kafka", (("a", "b"), ("logicalCluster", "lkc-1")), SecretRef("file", "/etc/ca.pem")
                ),
            ),
        ),
        (
            "{protocol: SASL_SSL, mechanism: OAUTHBEARER, provider: file, credentials: {file: /run/t}}",
            PlanSecurity("SASL_SSL", "OAUTHBEARER", SecretRef("file", "/run/t"), oauth=PlanOAuth(provider="file")),
        ),
        (
            "{protocol: SASL_SSL, mechanism: OAUTHBEARER, provider: aws_msk_iam, oauth: {region: us-gov-west-1, "
            "role: 'arn:aws-us-gov:iam::123456789012:role/x/y'}}",
            PlanSecurity(
                "SASL_SSL",
                "OAUTHBEARER",
                oauth=PlanOAuth(
                    provider="aws_msk_iam", region="us-gov-west-1", role="arn:aws-us-gov:iam::123456789012:role/x/y"
                ),
            ),
        ),
        (
            "{protocol: SASL_SSL, mechanism: OAUTHBEARER, provider: azure, credentials: {env: A}, "
            "oauth: {tenant: t.example}}",
            PlanSecurity(
                "SASL_SSL", "OAUTHBEARER", SecretRef("env", "A"), oauth=PlanOAuth(provider="azure", tenant="t.example")
            ),
        ),
        (
            "{protocol: SASL_SSL, mechanism: OAUTHBEARER, provider: google}",
            PlanSecurity("SASL_SSL", "OAUTHBEARER", oauth=PlanOAuth(provider="google")),
        ),
        (
            "{protocol: SASL_SSL, mechanism: GSSAPI, kerberos: {principal: w@EXAMPLE, keytab: {file: /etc/w.keytab}}}",
            PlanSecurity(
                "SASL_SSL", "GSSAPI", kerberos=PlanKerberos("kafka", "w@EXAMPLE", SecretRef("file", "/etc/w.keytab"))
            ),
        ),
        (
            "{protocol: SSL, certificate: {file: c.pem}, key: {file: k.pem}, key_password: {env: PASSPHRASE}}",
            PlanSecurity(
                "SSL",
                certificate=SecretRef("file", "c.pem"),
                key=SecretRef("file", "k.pem"),
                key_password=SecretRef("env", "PASSPHRASE"),
            ),
        ),
        (
            "{protocol: SSL, ca: {file: t.jks}, ca_password: {env: T}, certificate: {file: k.p12}, "
            "certificate_password: {env: K}}",
            PlanSecurity(
                "SSL",
                ca=SecretRef("file", "t.jks"),
                ca_password=SecretRef("env", "T"),
                certificate=SecretRef("file", "k.p12"),
                certificate_password=SecretRef("env", "K"),
            ),
        ),
    ],
)
def test_the_plan_has_all_of_it(security: str, expected: PlanSecurity) -> None:
    plan = planned(security)
    assert plan.cluster("a").security == expected
    assert decode_plan(encode_plan(plan)) == plan


def test_a_plan_without_them_is_as_it_was() -> None:
    plan = planned("{protocol: SSL}")
    security = json.loads(encode_plan(plan))["clusters"][0]["security"]
    assert sorted(security) == ["ca", "certificate", "credentials", "key", "mechanism", "protocol"]


def test_a_plan_with_client_credentials_keeps_its_hash() -> None:
    """What older plans did not have is not written where it is not used."""
    for said in ("", "provider: client_credentials, "):
        plan = planned(OAUTH.replace("ENDPOINT", "https://i/t").replace("credentials", f"{said}credentials"))
        oauth = json.loads(encode_plan(plan))["clusters"][0]["security"]["oauth"]
        assert oauth == {"ca": None, "extensions": {}, "scope": None, "token_endpoint": "https://i/t"}


MM2 = """
clusters = a, b
a.bootstrap.servers = {bootstrap}
b.bootstrap.servers = k1.b.example.internal:9093
a.security.protocol = SASL_SSL
a.sasl.mechanism = OAUTHBEARER
{more}
"""
CANARY = "c4n4ry"
STRIMZI = """
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata: {name: x}
spec:
  connectCluster: b
  clusters:
    - {alias: b, bootstrapServers: "k1.b.example.internal:9093"}
    - alias: a
      bootstrapServers: k1.a.example.internal:9093
      tls: {}
      authentication: {type: oauth, clientId: x, tokenEndpointUri: "https://u:c4n4ry@id.example.internal/token?k=c4n4ry#c4n4ry"}
  mirrors:
    - {sourceCluster: a, targetCluster: b, sourceConnector: {}, topicsPattern: "t"}
"""


def test_secrets_in_a_token_endpoint_stay_behind() -> None:
    endpoint = f"https://u:{CANARY}@id.example.internal/token?k={CANARY}#{CANARY}"
    properties = MM2.format(
        bootstrap="k1.a.example.internal:9093", more=f"a.sasl.oauthbearer.token.endpoint.url = {endpoint}"
    )
    for text, name in ((properties, "mm2.properties"), (STRIMZI, "mm2.yaml")):
        found = import_text(text, name)
        oauth = {each.alias: each for each in found.clusters}["a"].security["oauth"]
        assert oauth == {"token_endpoint": "https://id.example.internal/token"}
        [note] = [each for each in found.not_carried if each.what.startswith("parts of")]
        assert "user, query or fragment" in note.why
        assert CANARY not in note.what + note.why


@pytest.mark.parametrize(
    ("address", "expected", "said"),
    [
        ("file:///var/run/my%20token", {"file": "/var/run/my token"}, ""),
        ("file://[x", None, "it names no file"),
        ("file:///x%00y", None, "it names no file"),
        ("https://[x/token", None, "it is no address"),
    ],
)
def test_addresses_of_tokens(address: str, expected: dict[str, str] | None, said: str) -> None:
    more = f"a.sasl.oauthbearer.token.endpoint.url = {address}"
    found = import_text(MM2.format(bootstrap="k1.a.example.internal:9093", more=more), "mm2.properties")
    security = {each.alias: each for each in found.clusters}["a"].security
    assert security.get("credentials") == expected
    assert "oauth" not in security
    assert not said or any(said in each.why for each in found.not_carried)


@pytest.mark.parametrize(
    ("bootstrap", "region", "said"),
    [
        ("b-1.o.0ab12c.c2.kafka.eu-central-1.amazonaws.com:9098", "eu-central-1", "the brokers are in eu-central-1"),
        ("boot.example.internal:9098", "us-east-1", "us-east-1, that of STS, is taken"),
    ],
)
def test_the_region_of_sts_is_not_the_cluster_s(bootstrap: str, region: str, said: str) -> None:
    handler = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
    jaas = 'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required awsStsRegion="us-east-1";'
    more = f"a.sasl.login.callback.handler.class = {handler}\na.sasl.jaas.config = {jaas}"
    found = import_text(MM2.format(bootstrap=bootstrap, more=more), "mm2.properties")
    assert {each.alias: each for each in found.clusters}["a"].security["oauth"] == {"region": region}
    [note] = [each for each in found.not_carried if each.what.startswith("awsStsRegion")]
    assert said in note.why


def test_a_client_of_another_tool_brings_its_endpoint() -> None:
    settings = """
clusters = a, b
a.bootstrap.servers = k1.a.example.internal:9093
a.security.protocol = SASL_SSL
a.sasl.mechanism = OAUTHBEARER
a.sasl.jaas.config = org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
a.sasl.oauthbearer.token.endpoint.url = https://id.example.internal/token
a.sasl.oauthbearer.scope = kafka
b.bootstrap.servers = k1.b.example.internal:9093
b.security.protocol = SASL_SSL
b.sasl.kerberos.service.name = broker
"""
    clusters = {each.alias: each for each in import_text(settings, "mm2.properties").clusters}
    assert clusters["a"].security["oauth"] == {"token_endpoint": "https://id.example.internal/token", "scope": "kafka"}
    assert clusters["b"].security["kerberos"] == {"service": "broker"}
