"""Generates the Kafka codec in headrace.wire.kafka.messages from tables of the protocol's fields."""
