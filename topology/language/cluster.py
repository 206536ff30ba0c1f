"""`clusters.<alias>`: where a cluster is, how to connect, and facts that rules may use offline."""

from __future__ import annotations

import re

from watershed.topology.language.scalars import (
    BOOLEAN_SHAPE,
    BROKER_ADDRESS_SHAPE,
    CLUSTER_ID_SHAPE,
    COUNT_SHAPE,
    DURATION_SHAPE,
    HTTP_URL_SHAPE,
    LINE_SHAPE,
    RATE_SHAPE,
    REGISTRY_URL_SHAPE,
    REPLICA_COUNT_SHAPE,
    RETENTION_SHAPE,
    SECRET_REF_SHAPE,
    SELECTOR_SHAPE,
    SHARE_SHAPE,
    SIZE_SHAPE,
    TEXT_LIST_SHAPE,
    TEXT_SHAPE,
    build_enum_shape,
    build_regex_converter,
    build_text_shape,
)
from watershed.topology.msk_arn import MSK_ARN_REGEX, parse_msk_arn
from watershed.topology.token_providers import DEFAULT_TOKEN_PROVIDER, TOKEN_PROVIDERS
from watershed.topology.yaml_shapes import ListShape, MapShape, NamedShape, RecordShape, ShapeKey

_REGION = re.compile(r"[a-z]{2,8}(?:-[a-z]{1,16}){1,3}-[0-9]{1,2}")
_ROLE = re.compile(r"arn:aws[a-z-]{0,16}:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]{1,512}")
_TENANT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")
_CLIENT_ID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
AWS_REGION_SHAPE = build_text_shape(
    "a region of AWS",
    build_regex_converter(_REGION, "a region of AWS, such as eu-central-1"),
    pattern=f"^{_REGION.pattern}$",
    examples=["eu-central-1"],
)
_OAUTH = RecordShape(
    {
        "token_endpoint": ShapeKey(
            HTTP_URL_SHAPE,
            "Where access tokens come from; https, except on this very machine. `client_credentials` needs it.",
        ),
        "scope": ShapeKey(TEXT_SHAPE, "The scope to ask for, where the endpoint wants one."),
        "extensions": ShapeKey(
            MapShape(TEXT_SHAPE), "SASL extensions that brokers want beside the token, such as `logicalCluster`."
        ),
        "ca": ShapeKey(
            SECRET_REF_SHAPE, "The certificate authority of the token endpoint.", "the system's authorities"
        ),
        "region": ShapeKey(
            AWS_REGION_SHAPE,
            "Provider `aws_msk_iam`: the region that the cluster is in.",
        ),
        "role": ShapeKey(
            build_text_shape(
                "the ARN of a role",
                build_regex_converter(_ROLE, "the ARN of a role, arn:aws:iam::ACCOUNT:role/NAME", 600),
                pattern=f"^{_ROLE.pattern}$",
                examples=["arn:aws:iam::123456789012:role/watershed"],
            ),
            "Provider `aws_msk_iam`: a role to assume first; `token_endpoint` is then STS, if not the region's.",
            "the identity itself",
        ),
        "tenant": ShapeKey(
            build_text_shape(
                "a tenant of Microsoft Entra",
                build_regex_converter(_TENANT, "a tenant of Microsoft Entra: its id or its domain"),
                pattern=f"^{_TENANT.pattern}$",
                examples=["contoso.onmicrosoft.com"],
            ),
            "Provider `azure`, with `credentials`: the tenant of the application.",
        ),
        "client_id": ShapeKey(
            build_text_shape(
                "the client id of an identity",
                build_regex_converter(_CLIENT_ID, "the client id of an identity, a UUID"),
                pattern=f"^{_CLIENT_ID.pattern}$",
            ),
            "Provider `azure`, without `credentials`: which managed identity, where the machine has several.",
        ),
    },
    usual="{token_endpoint: 'https://id.example.internal/token'}",
)
_KERBEROS = RecordShape(
    {
        "service": ShapeKey(LINE_SHAPE, "The first part of the brokers' principals.", "`kafka`"),
        "principal": ShapeKey(LINE_SHAPE, "Who we are.", "the ticket cache's or keytab's own"),
        "keytab": ShapeKey(SECRET_REF_SHAPE, "The keytab with our key.", "the ticket cache"),
    }
)
_SECURITY = RecordShape(
    {
        "protocol": ShapeKey(
            build_enum_shape("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT"), "Kafka's security.protocol."
        ),
        "mechanism": ShapeKey(
            build_enum_shape("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"),
            "Kafka's sasl.mechanism; only with a SASL protocol.",
        ),
        "provider": ShapeKey(
            build_enum_shape(*TOKEN_PROVIDERS),
            "Where OAUTHBEARER gets its tokens; `docs/security.md` has what each provider needs.",
            f"`{DEFAULT_TOKEN_PROVIDER}`",
        ),
        "credentials": ShapeKey(
            SECRET_REF_SHAPE,
            "Where `user:password` (or what the token `provider` takes) stand; never the secret itself.",
        ),
        "align_credentials": ShapeKey(
            SECRET_REF_SHAPE,
            "The same for a second account, which alone deletes records for `offsets: aligned` (role `align`).",
            "`credentials`",
        ),
        "ca": ShapeKey(
            SECRET_REF_SHAPE,
            "The certificate authority that signed the brokers' certificates (PEM, or a trust store: JKS, PKCS#12).",
            "the system's authorities",
        ),
        "ca_password": ShapeKey(SECRET_REF_SHAPE, "The password of that trust store, where it has one."),
        "certificate": ShapeKey(
            SECRET_REF_SHAPE,
            "The client's certificate, for mutual TLS (PEM; it may hold the key, too. Or a key store: JKS, PKCS#12).",
        ),
        "certificate_password": ShapeKey(SECRET_REF_SHAPE, "The password of that key store."),
        "key": ShapeKey(SECRET_REF_SHAPE, "The client's private key, for mutual TLS (PEM)."),
        "key_password": ShapeKey(SECRET_REF_SHAPE, "The passphrase of the private key, where it has one."),
        "oauth": ShapeKey(_OAUTH, "For OAUTHBEARER: what the `provider` has to know."),
        "kerberos": ShapeKey(_KERBEROS, "For GSSAPI."),
    },
    required=("protocol",),
    usual="{protocol: SASL_SSL, mechanism: SCRAM-SHA-512, credentials: {env: NAME}}",
)
_FACTS = RecordShape(
    {
        "brokers": ShapeKey(COUNT_SHAPE, "How many brokers the cluster has."),
        "racks": ShapeKey(COUNT_SHAPE, "How many racks (or zones) they stand in."),
        "kafka": ShapeKey(TEXT_SHAPE, 'The release, quoted: "4.1".'),
        "max_message": ShapeKey(SIZE_SHAPE, "The brokers' message.max.bytes."),
        "tiered_storage": ShapeKey(BOOLEAN_SHAPE, "Whether the brokers have remote storage."),
    }
)
_LIMITS = RecordShape(
    {
        "ingress": ShapeKey(RATE_SHAPE, "What the cluster takes from all producers and flows together."),
        "egress": ShapeKey(RATE_SHAPE, "What it gives to all consumers and flows together."),
        "partitions": ShapeKey(COUNT_SHAPE, "The most partitions, replicas not counted."),
        "workers": ShapeKey(COUNT_SHAPE, "How many replicator workers can run for flows into this cluster."),
        "headroom": ShapeKey(SHARE_SHAPE, "The share of ingress and egress that plans must leave free.", "`30%`"),
    }
)
_TOPIC_FACT = NamedShape(
    "topic_fact",
    RecordShape(
        {
            "match": ShapeKey(
                SELECTOR_SHAPE, "The topics that this entry is about; the first entry that matches a topic counts."
            ),
            "partitions": ShapeKey(COUNT_SHAPE, "Partitions of each topic."),
            "replication_factor": ShapeKey(REPLICA_COUNT_SHAPE, "Replicas of each partition."),
            "min_insync_replicas": ShapeKey(REPLICA_COUNT_SHAPE, "Kafka's min.insync.replicas."),
            "retention": ShapeKey(RETENTION_SHAPE, "Kafka's retention.ms, as a duration, or `forever`."),
            "retention_bytes": ShapeKey(SIZE_SHAPE, "Kafka's retention.bytes, for a partition."),
            "cleanup": ShapeKey(build_enum_shape("delete", "compact", "compact_delete"), "Kafka's cleanup.policy."),
            "delete_retention": ShapeKey(DURATION_SHAPE, "Kafka's delete.retention.ms: how long tombstones stay."),
            "max_message": ShapeKey(SIZE_SHAPE, "Kafka's max.message.bytes."),
            "timestamps": ShapeKey(
                build_enum_shape("create_time", "log_append_time"), "Kafka's message.timestamp.type."
            ),
            "compression": ShapeKey(
                build_enum_shape("producer", "uncompressed", "none", "gzip", "snappy", "lz4", "zstd"),
                "Kafka's compression.type.",
            ),
            "tiered_storage": ShapeKey(BOOLEAN_SHAPE, "Kafka's remote.storage.enable."),
            "keyed": ShapeKey(BOOLEAN_SHAPE, "Whether records have keys whose order matters."),
            "transactional": ShapeKey(BOOLEAN_SHAPE, "Whether producers write in transactions."),
            "schema": ShapeKey(
                build_enum_shape("avro", "protobuf", "json", "none"), "How values are encoded with a schema registry."
            ),
            "residency": ShapeKey(TEXT_SHAPE, "Where the data must stay, compared with the clusters' `residency`."),
            "classification": ShapeKey(TEXT_SHAPE, "A label such as `pii`."),
        },
        required=("match",),
    ),
)
CLUSTER_SHAPE = NamedShape(
    "cluster",
    RecordShape(
        {
            "bootstrap": ShapeKey(
                ListShape(BROKER_ADDRESS_SHAPE, empty="a cluster needs at least one address"),
                "Addresses `host:port` to begin with; two or more survive a broker that is down.",
            ),
            "cluster_id": ShapeKey(
                CLUSTER_ID_SHAPE, "The id that the brokers must answer with; anything else is refused."
            ),
            "arn": ShapeKey(
                build_text_shape(
                    "the ARN of an MSK cluster",
                    parse_msk_arn,
                    pattern=f"^{re.sub('[?]P<[a-z]+>', '', MSK_ARN_REGEX.pattern)}$",
                    examples=[
                        "arn:aws:kafka:eu-central-1:123456789012:cluster/orders/0ab12c34-5d6e-7f89-a0b1-c2d3e4f5a6b7-1"
                    ],
                ),
                "The cluster's ARN at Amazon MSK; `topology acls --format iam` needs it.",
            ),
            "rack": ShapeKey(
                TEXT_SHAPE,
                "The rack (or zone) in which our readers stand, as the brokers call theirs (`broker.rack`): proofs "
                "then read from a replica there, where the brokers have a rack-aware `replica.selector.class`.",
            ),
            "region": ShapeKey(TEXT_SHAPE, "Where the cluster stands."),
            "regions": ShapeKey(
                TEXT_LIST_SHAPE, "More than one makes it a stretch cluster: one cluster, no flow inside it."
            ),
            "residency": ShapeKey(TEXT_SHAPE, "Where data in this cluster legally is."),
            "owner": ShapeKey(TEXT_SHAPE, "Who owns the cluster's data."),
            "stretch": ShapeKey(
                RecordShape(
                    {
                        "max_rtt": ShapeKey(DURATION_SHAPE, "The longest round trip between the regions."),
                        "sync_replicas": ShapeKey(MapShape(COUNT_SHAPE), "Region → replicas that are in sync there."),
                        "tie_breaker": ShapeKey(TEXT_SHAPE, "The region that only votes."),
                        "observers": ShapeKey(TEXT_LIST_SHAPE, "Regions with asynchronous replicas."),
                    }
                ),
                "How a stretch cluster is laid out.",
            ),
            "security": ShapeKey(_SECURITY, "How to connect.", "PLAINTEXT"),
            "schema_registry": ShapeKey(
                RecordShape(
                    {
                        "url": ShapeKey(
                            REGISTRY_URL_SHAPE,
                            "The root of its Confluent-compatible API, with a path if there is one "
                            "(`…/apis/ccompat/v7`; `…/contexts/.name` for one context).",
                        ),
                        "credentials": ShapeKey(SECRET_REF_SHAPE, "Where its user and password are."),
                        "ca": ShapeKey(
                            SECRET_REF_SHAPE,
                            "The certificate authority of its certificate (PEM).",
                            "the system's authorities",
                        ),
                        "certificate": ShapeKey(SECRET_REF_SHAPE, "The client's certificate, for mutual TLS (PEM)."),
                        "key": ShapeKey(SECRET_REF_SHAPE, "The client's private key, for mutual TLS (PEM)."),
                        "key_password": ShapeKey(
                            SECRET_REF_SHAPE, "The passphrase of the private key, where it has one."
                        ),
                    },
                    required=("url",),
                ),
                "The registry that this cluster's applications use.",
            ),
            "facts": ShapeKey(
                _FACTS, "What is known about the brokers, so that rules work offline; a scan overrides it."
            ),
            "limits": ShapeKey(_LIMITS, "What plans may ask of the cluster."),
            "topics": ShapeKey(ListShape(_TOPIC_FACT), "What is known about its topics; a scan overrides it."),
        },
        required=("bootstrap",),
    ),
)
