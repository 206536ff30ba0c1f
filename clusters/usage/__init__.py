"""Asks where an estate keeps its history of use: Prometheus, the JMX exporter's own pages, CloudWatch and Cost
Explorer, Confluent's Metrics API."""
