"""A value that must not be seen: not in a log line, not in an error, not in a listing of the configuration."""


class Secret:
    """Shows itself only to whoever asks for it by name."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(...)"
