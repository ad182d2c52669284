"""The door for SQS clients. Nothing is here yet."""
