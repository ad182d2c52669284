"""Rows into topics and queues, exactly once. `topic_writer` is the beginning; its text says how it goes."""
