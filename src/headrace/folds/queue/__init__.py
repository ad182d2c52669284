"""The queue fold: who may receive which message of a partition next."""
