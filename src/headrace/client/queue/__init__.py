"""Queues from Python: send, receive, acknowledge, work."""
