"""`clusters.<alias>`: where a cluster is, how to connect, and facts that rules may use offline."""

from __future__ import annotations

from topology.language.scalars import (
    ADDRESS,
    BOOLEAN,
    CLUSTER_ID,
    COUNT,
    DURATION,
    HTTP,
    LINE,
    RATE,
    REGISTRY,
    REPLICAS,
    RETENTION,
    SECRET,
    SELECTOR,
    SHARE,
    SIZE,
    TEXT,
    TEXTS,
    word,
)
from topology.shapes import Key, ListOf, MapOf, Named, Record

_OAUTH = Record(
    {
        "token_endpoint": Key(
            HTTP,
            "Where access tokens come from, by OAuth 2.0 client credentials; https, except on this very machine.",
        ),
        "scope": Key(TEXT, "The scope to ask for, where the endpoint wants one."),
        "extensions": Key(MapOf(TEXT), "SASL extensions that brokers want beside the token, such as `logicalCluster`."),
        "ca": Key(SECRET, "The certificate authority of the token endpoint.", "the system's authorities"),
    },
    required=("token_endpoint",),
)
_KERBEROS = Record(
    {
        "service": Key(LINE, "The first part of the brokers' principals.", "`kafka`"),
        "principal": Key(LINE, "Who we are.", "the ticket cache's or keytab's own"),
        "keytab": Key(SECRET, "The keytab with our key.", "the ticket cache"),
    }
)
_SECURITY = Record(
    {
        "protocol": Key(word("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT"), "Kafka's security.protocol."),
        "mechanism": Key(
            word("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"),
            "Kafka's sasl.mechanism; only with a SASL protocol.",
        ),
        "credentials": Key(
            SECRET,
            "Where `user:password` (or client id and secret) stand; never the secret itself.",
        ),
        "align_credentials": Key(
            SECRET,
            "The same for a second account, which alone deletes records for `offsets: aligned` (role `align`).",
            "`credentials`",
        ),
        "ca": Key(
            SECRET, "The certificate authority that signed the brokers' certificates (PEM).", "the system's authorities"
        ),
        "certificate": Key(SECRET, "The client's certificate, for mutual TLS (PEM; it may hold the key, too)."),
        "key": Key(SECRET, "The client's private key, for mutual TLS (PEM)."),
        "key_password": Key(SECRET, "The passphrase of the private key, where it has one."),
        "oauth": Key(_OAUTH, "For OAUTHBEARER; `credentials` are then the client's id and secret."),
        "kerberos": Key(_KERBEROS, "For GSSAPI."),
    },
    required=("protocol",),
    usual="{protocol: SASL_SSL, mechanism: SCRAM-SHA-512, credentials: {env: NAME}}",
)
_FACTS = Record(
    {
        "brokers": Key(COUNT, "How many brokers the cluster has."),
        "racks": Key(COUNT, "How many racks (or zones) they stand in."),
        "kafka": Key(TEXT, 'The release, quoted: "4.1".'),
        "max_message": Key(SIZE, "The brokers' message.max.bytes."),
        "tiered_storage": Key(BOOLEAN, "Whether the brokers have remote storage."),
    }
)
_LIMITS = Record(
    {
        "ingress": Key(RATE, "What the cluster takes from all producers and flows together."),
        "egress": Key(RATE, "What it gives to all consumers and flows together."),
        "partitions": Key(COUNT, "The most partitions, replicas not counted."),
        "workers": Key(COUNT, "How many replicator workers can run for flows into this cluster."),
        "headroom": Key(SHARE, "The share of ingress and egress that plans must leave free.", "`30%`"),
    }
)
_TOPIC_FACT = Named(
    "topic_fact",
    Record(
        {
            "match": Key(SELECTOR, "The topics that this entry is about; the first entry that matches a topic counts."),
            "partitions": Key(COUNT, "Partitions of each topic."),
            "replication_factor": Key(REPLICAS, "Replicas of each partition."),
            "min_insync_replicas": Key(REPLICAS, "Kafka's min.insync.replicas."),
            "retention": Key(RETENTION, "Kafka's retention.ms, as a duration, or `forever`."),
            "retention_bytes": Key(SIZE, "Kafka's retention.bytes, for a partition."),
            "cleanup": Key(word("delete", "compact", "compact_delete"), "Kafka's cleanup.policy."),
            "delete_retention": Key(DURATION, "Kafka's delete.retention.ms: how long tombstones stay."),
            "max_message": Key(SIZE, "Kafka's max.message.bytes."),
            "timestamps": Key(word("create_time", "log_append_time"), "Kafka's message.timestamp.type."),
            "compression": Key(
                word("producer", "uncompressed", "none", "gzip", "snappy", "lz4", "zstd"), "Kafka's compression.type."
            ),
            "tiered_storage": Key(BOOLEAN, "Kafka's remote.storage.enable."),
            "keyed": Key(BOOLEAN, "Whether records have keys whose order matters."),
            "transactional": Key(BOOLEAN, "Whether producers write in transactions."),
            "schema": Key(word("avro", "protobuf", "json", "none"), "How values are encoded with a schema registry."),
            "residency": Key(TEXT, "Where the data must stay, compared with the clusters' `residency`."),
            "classification": Key(TEXT, "A label such as `pii`."),
        },
        required=("match",),
    ),
)
CLUSTER = Named(
    "cluster",
    Record(
        {
            "bootstrap": Key(
                ListOf(ADDRESS, empty="a cluster needs at least one address"),
                "Addresses `host:port` to begin with; two or more survive a broker that is down.",
            ),
            "cluster_id": Key(CLUSTER_ID, "The id that the brokers must answer with; anything else is refused."),
            "rack": Key(
                TEXT,
                "The rack (or zone) in which our readers stand, as the brokers call theirs (`broker.rack`): proofs "
                "then read from a replica there, where the brokers have a rack-aware `replica.selector.class`.",
            ),
            "region": Key(TEXT, "Where the cluster stands."),
            "regions": Key(TEXTS, "More than one makes it a stretch cluster: one cluster, no flow inside it."),
            "residency": Key(TEXT, "Where data in this cluster legally is."),
            "owner": Key(TEXT, "Who owns the cluster's data."),
            "stretch": Key(
                Record(
                    {
                        "max_rtt": Key(DURATION, "The longest round trip between the regions."),
                        "sync_replicas": Key(MapOf(COUNT), "Region → replicas that are in sync there."),
                        "tie_breaker": Key(TEXT, "The region that only votes."),
                        "observers": Key(TEXTS, "Regions with asynchronous replicas."),
                    }
                ),
                "How a stretch cluster is laid out.",
            ),
            "security": Key(_SECURITY, "How to connect.", "PLAINTEXT"),
            "schema_registry": Key(
                Record(
                    {
                        "url": Key(
                            REGISTRY,
                            "The root of its Confluent-compatible API, with a path if there is one "
                            "(`…/apis/ccompat/v7`; `…/contexts/.name` for one context).",
                        ),
                        "credentials": Key(SECRET, "Where its user and password are."),
                        "ca": Key(
                            SECRET, "The certificate authority of its certificate (PEM).", "the system's authorities"
                        ),
                        "certificate": Key(SECRET, "The client's certificate, for mutual TLS (PEM)."),
                        "key": Key(SECRET, "The client's private key, for mutual TLS (PEM)."),
                        "key_password": Key(SECRET, "The passphrase of the private key, where it has one."),
                    },
                    required=("url",),
                ),
                "The registry that this cluster's applications use.",
            ),
            "facts": Key(_FACTS, "What is known about the brokers, so that rules work offline; a scan overrides it."),
            "limits": Key(_LIMITS, "What plans may ask of the cluster."),
            "topics": Key(ListOf(_TOPIC_FACT), "What is known about its topics; a scan overrides it."),
        },
        required=("bootstrap",),
    ),
)
