"""Principals, permissions, keys, envelopes. Nothing is here yet: every door is open and on loopback."""
