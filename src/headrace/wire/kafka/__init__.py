"""The Kafka protocol's frames and records."""
