"""Pure state machines over the committed entries of a partition."""
