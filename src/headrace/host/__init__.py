"""The machine behind small protocols: clock, disk, network, threads, entropy."""
