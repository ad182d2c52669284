"""Leader and follower rules. Nothing is here yet: a partition has one replica."""
