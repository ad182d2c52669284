"""The options that a user gave: looked up whatever their case, and refused by one sentence where they cannot be.

A name that nobody knows is refused too, and the nearest valid one is named: an option that does nothing because of a
slip of the pen is worse than none.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from headrace.spark.errors import OptionError

INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1


class Given:
    """Options by name. PySpark has made all names lower case; messages spell them as the documentation does."""

    def __init__(
        self, options: Mapping[str, str], known: Iterable[str], *, elsewhere: Mapping[str, str] | None = None
    ) -> None:
        """`elsewhere` has options of the other side, each with what to say instead."""
        self._values = {name.lower(): value for name, value in options.items()}
        check_names(self._values, known, elsewhere=elsewhere or {})

    def __bool__(self) -> bool:
        return bool(self._values)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        if value is None:
            return None
        value = value.strip()
        if not value:
            raise OptionError(f"the option {name} is empty; give it a value or leave it out")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise OptionError(f"the option {name} is {value!r}; it is true or false")
        return value.lower() == "true"

    def count(self, name: str, *, least: int = 1, most: int = INT64_MAX) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if number < least:
            raise OptionError(f"the option {name} is {value!r}; it is a whole number of at least {least}")
        if number > most:
            raise OptionError(f"the option {name} is {value!r}; it is at most {most}")
        return number

    def choice(self, name: str, choices: Iterable[str], *, default: str) -> str:
        value = self.text(name)
        if value is None:
            return default
        allowed = list(choices)
        if value.lower() not in allowed:
            raise OptionError(f"the option {name} is {value!r}; it is one of {', '.join(allowed)}")
        return value.lower()


def check_names(given: Iterable[str], known: Iterable[str], *, elsewhere: Mapping[str, str]) -> None:
    """Refuse the first name that is not known, and name the nearest that is."""
    names = {name.lower(): name for name in known}
    others = {name.lower(): (name, instead) for name, instead in elsewhere.items()}
    for name in given:
        if name.lower() in names:
            continue
        if name.lower() in others:
            spelt, instead = others[name.lower()]
            raise OptionError(f"the option {spelt} is not taken here: {instead}")
        near = get_close_matches(name.lower(), names, n=1, cutoff=0.6)
        hint = f"; did you mean {names[near[0]]}?" if near else "; docs/spark.md lists those that there are"
        raise OptionError(f"there is no option {name}{hint}")
