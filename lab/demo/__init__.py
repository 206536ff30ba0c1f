"""The demonstration: from one YAML file to a proven, finished migration on real Kafka.

    python -m watershed.lab.demo run [--fault worker]    make demo, make demo FAULT=worker
    python -m watershed.lab.demo up | down               make up, make down

Everything lives in `.watershed/demo`: clusters, applications, Airflow, the topology file, the evidence.
"""
