"""The coordinator of groups: the fold over the internal topic, the machines above it, and their timers."""
