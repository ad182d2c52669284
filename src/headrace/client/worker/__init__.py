"""Workers: functions that are called for each message of a queue."""
