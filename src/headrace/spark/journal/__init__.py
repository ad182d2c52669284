"""The journal of a log: not its messages but its batches, one row each, control entries included."""
