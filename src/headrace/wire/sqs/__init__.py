"""SQS's two protocols as values: requests, answers, errors, checks. No I/O, no queue."""
