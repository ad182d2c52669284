"""Durability of one partition: segments, indexes, journal, recovery, retention, truncation."""
