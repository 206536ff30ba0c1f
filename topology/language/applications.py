"""`migration.applications`: how each application is stopped and started, and who it is for brokers."""

from __future__ import annotations

import re

from watershed.topology.language.scalars import (
    HTTP_URL_SHAPE,
    IDENTIFIER_KEYS_SCHEMA,
    IDENTIFIER_SHAPE,
    NONZERO_DURATION_SHAPE,
    PRINCIPAL_SHAPE,
    SECRET_REF_SHAPE,
    TEXT_SHAPE,
    build_regex_converter,
    build_text_shape,
    parse_identifier,
)
from watershed.topology.yaml_shapes import ListShape, MapShape, NamedShape, RecordShape, ShapeKey

# RFC 1123 names, as Kubernetes has them for Deployments, StatefulSets and ConfigMaps; namespaces are labels.
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(?:\.{_LABEL})*"
_WORKLOAD = re.compile(rf"(?:deployment|statefulset)/{_SUBDOMAIN}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_CONFIG_KEY = re.compile(r"[A-Za-z0-9._-]+")
_DAG = re.compile(r"[A-Za-z0-9_.~-]+(?:/[A-Za-z0-9_.~-]+)?")
_PROGRAM = re.compile(r"[a-z0-9](?:[a-z0-9_.-]*[a-z0-9])?")

_WORKLOAD_SHAPE = build_text_shape(
    "`deployment/NAME` or `statefulset/NAME`",
    build_regex_converter(_WORKLOAD, "`deployment/NAME` or `statefulset/NAME`"),
    pattern=f"^{_WORKLOAD.pattern}$",
    examples=["deployment/checkout"],
)
_LABEL_SHAPE = build_text_shape(
    "a namespace", build_regex_converter(re.compile(_LABEL), "a namespace of Kubernetes", 63), pattern=f"^{_LABEL}$"
)
_OBJECT_SHAPE = build_text_shape(
    "a ConfigMap's name", build_regex_converter(re.compile(_SUBDOMAIN), "a ConfigMap's name"), pattern=f"^{_SUBDOMAIN}$"
)
_VARIABLE_SHAPE = build_text_shape(
    "an environment variable",
    build_regex_converter(_VARIABLE, "an environment variable"),
    pattern=f"^{_VARIABLE.pattern}$",
)
_CONFIG_KEY_SHAPE = build_text_shape(
    "a key of a ConfigMap",
    build_regex_converter(_CONFIG_KEY, "a key of a ConfigMap"),
    pattern=f"^{_CONFIG_KEY.pattern}$",
)
_DAG_SHAPE = build_text_shape(
    "`dag_id` or `dag_id/task_id`",
    build_regex_converter(_DAG, "`dag_id` or `dag_id/task_id`"),
    pattern=f"^{_DAG.pattern}$",
    examples=["stop_checkout"],
)
_PROGRAM_SHAPE = build_text_shape(
    "the name of a program, without a path",
    build_regex_converter(_PROGRAM, "the name of a program that the host's settings list, without a path", 80),
    pattern=f"^{_PROGRAM.pattern}$",
    examples=["switch"],
)
_AUTHENTICATION = NamedShape(
    "authentication",
    RecordShape(
        {
            "bearer": ShapeKey(SECRET_REF_SHAPE, "A token, sent as `Authorization: Bearer`."),
            "hmac": ShapeKey(
                SECRET_REF_SHAPE,
                "The key of the HMAC-SHA256 over time, method, path and body (docs/applications.md).",
            ),
            "mtls": ShapeKey(
                RecordShape(
                    {
                        "certificate": ShapeKey(SECRET_REF_SHAPE, "A PEM file with our certificate."),
                        "key": ShapeKey(SECRET_REF_SHAPE, "A PEM file with its key, not encrypted."),
                        "ca": ShapeKey(
                            SECRET_REF_SHAPE, "A PEM file with whom the switch is trusted by.", "the system's"
                        ),
                    },
                    required=("certificate", "key"),
                ),
                "A certificate of ours, which the switch asks for.",
            ),
        },
        one_of=True,
    ),
)
_KUBERNETES = NamedShape(
    "kubernetes",
    RecordShape(
        {
            "namespace": ShapeKey(
                _LABEL_SHAPE, "The namespace; it must be one of WATERSHED_KUBERNETES_NAMESPACES of the host."
            ),
            "workloads": ShapeKey(
                ListShape(_WORKLOAD_SHAPE, empty="an application has at least one workload"),
                "What is scaled to 0, and back to the replicas that it had: `deployment/NAME`, `statefulset/NAME`.",
            ),
            "bootstrap": ShapeKey(
                RecordShape(
                    {
                        "env": ShapeKey(_VARIABLE_SHAPE, "An environment variable of the workloads' containers."),
                        "container": ShapeKey(
                            _LABEL_SHAPE, "With `env`: of this container only.", "each that has the variable"
                        ),
                        "config_map": ShapeKey(_OBJECT_SHAPE, "Or: the ConfigMap that holds them."),
                        "key": ShapeKey(_CONFIG_KEY_SHAPE, "With `config_map`: under which key."),
                        "values": ShapeKey(
                            MapShape(TEXT_SHAPE),
                            "Cluster → what is written there.",
                            "the cluster's `bootstrap`, with commas",
                        ),
                    }
                ),
                "Where the workloads read their bootstrap servers.",
            ),
            "credentials": ShapeKey(
                SECRET_REF_SHAPE,
                "A kubeconfig (`file`, `env`), or Airflow's Kubernetes connection (`airflow_connection`).",
                "the service account of the pod that runs the migration",
            ),
            "context": ShapeKey(TEXT_SHAPE, "A context of the kubeconfig.", "its current one"),
        },
        required=("namespace", "workloads", "bootstrap"),
    ),
)
_APPLICATION = NamedShape(
    "application",
    RecordShape(
        {
            "http": ShapeKey(
                HTTP_URL_SHAPE, "Its start and stop switch; the host must be one of WATERSHED_HOOK_HOSTS."
            ),
            "authentication": ShapeKey(_AUTHENTICATION, "With `http`: how requests prove who asks.", "not at all"),
            "person": ShapeKey(
                TEXT_SHAPE, "A person stops and starts it: what to do, and whom to ask. Shown in the question."
            ),
            "command": ShapeKey(
                _PROGRAM_SHAPE,
                "A program stops and starts it. The settings of the host that runs the migration say which program the "
                "name means (WATERSHED_COMMANDS).",
            ),
            "airflow": ShapeKey(
                RecordShape(
                    {
                        "stop": ShapeKey(_DAG_SHAPE, "The run that stops it."),
                        "start": ShapeKey(_DAG_SHAPE, "The run that starts it at the cluster in its `conf`."),
                    },
                    required=("stop", "start"),
                ),
                "DAGs stop and start it: `dag_id`, or `dag_id/task_id` to wait for that task only.",
            ),
            "kubernetes": ShapeKey(_KUBERNETES, "Workloads of Kubernetes: scaled to 0, patched, scaled back."),
            "timeout": ShapeKey(
                NONZERO_DURATION_SHAPE,
                "How long one order to stop or to start may take.",
                "`1m` for http and command, `5m` for kubernetes, `10m` for airflow, `30m` for a person",
            ),
            "principal": ShapeKey(PRINCIPAL_SHAPE, "Who it is for brokers (`User:checkout`): for fences and messages."),
            "client_id": ShapeKey(IDENTIFIER_SHAPE, "The client id of its producers: for quotas and messages."),
        }
    ),
)
APPLICATIONS_SHAPE = MapShape(_APPLICATION, parse_identifier, names=IDENTIFIER_KEYS_SCHEMA)
