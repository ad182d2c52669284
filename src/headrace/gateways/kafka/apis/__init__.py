"""The Kafka APIs that this gateway serves: one file for each, with its versions and deviations at its top."""
