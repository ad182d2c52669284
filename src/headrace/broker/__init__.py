"""Protocol-neutral use cases: produce, fetch, admin."""
