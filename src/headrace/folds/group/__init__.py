"""Groups: who reads which partition, and how far each group has read."""
