"""Whole nodes under load and faults in virtual time, all from one seed."""
