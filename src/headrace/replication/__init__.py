"""Leader and follower rules: pure functions. There is one so far, of a partition without replicas."""
