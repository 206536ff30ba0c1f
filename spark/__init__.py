"""Proofs on Spark, the fleet as a Spark application, and Kafka topics as a Spark data source."""
