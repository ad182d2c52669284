"""Regular expressions over topic names, matched in time that grows with the name's length and nothing else.

Kafka's brokers match a subscription's expression with RE2, which never goes back; Python's `re` does, and a single
expression could hold the whole node. So the expression is read here into a machine whose possible states are
carried forward together, one character at a time (Thompson's way), and the sets that were met are remembered. The
syntax is RE2's, as far as it makes sense for topic names; what has no place in it (look-around, references back) is
refused. A name matches as a whole.
"""

from string import ascii_letters, digits
from typing import NamedTuple

from headrace.model.errors import InvalidRegexError

LENGTH_MAX = 1000
STATES_MAX = 1000
_DEPTH_MAX = 50
_REPEAT_MAX = 1000
_REMEMBERED_MAX = 2000

_ALPHABET = frozenset(ascii_letters + digits + "._-")  # of topic names: nothing else can match
_WORD = frozenset(ascii_letters + digits + "_")
_CLASSES = {
    "d": frozenset(digits),
    "w": _WORD,
    "s": frozenset[str](),
    "D": _ALPHABET - frozenset(digits),
    "W": _ALPHABET - _WORD,
    "S": _ALPHABET,
}


class _Chars(NamedTuple):
    chars: frozenset[str]


class _Edge(NamedTuple):
    is_start: bool


class _All(NamedTuple):
    """One after the other."""

    parts: "tuple[_Node, ...]"


class _Either(NamedTuple):
    parts: "tuple[_Node, ...]"


class _Repeat(NamedTuple):
    part: "_Node"
    least: int
    most: int | None


_Node = _Chars | _Edge | _All | _Either | _Repeat


class _Reader:
    """Reads an expression into nodes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._ignores_case = False
        if text.startswith("(?i)"):
            self._ignores_case, self._at = True, 4

    def read(self) -> _Node:
        node = self._either()
        if self._at < len(self._text):
            raise self._wrong("a bracket is closed that was not opened")
        return node

    def _wrong(self, why: str) -> InvalidRegexError:
        return InvalidRegexError(f"the regular expression cannot be used: {why} (at character {self._at})")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise self._wrong("it ends too early")
        self._at += 1
        return char

    def _either(self) -> _Node:
        parts = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else _Either(tuple(parts))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return _All(tuple(parts))

    def _repeated(self, node: _Node) -> _Node:
        char = self._peek()
        bounds: tuple[int, int | None]
        if char and char in "*+?":
            self._at += 1
            bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        elif char == "{":
            bounds = self._counts()
        else:
            return node
        if self._peek() == "?":
            self._at += 1  # which way round it is tried makes no difference to whether all of a name matches
        elif self._peek() and self._peek() in "*+{":
            raise self._wrong("a repetition is repeated")
        return _Repeat(node, *bounds)

    def _counts(self) -> tuple[int, int | None]:
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : max(end, self._at + 1)].partition(",")
        if end < 0 or not _is_count(least) or (most and not _is_count(most)):
            raise self._wrong("a brace has no count in it; write \\{ for a brace")
        self._at = end + 1
        low, high = int(least), int(most) if most else None if comma else int(least)
        if low > _REPEAT_MAX or (high is not None and not low <= high <= _REPEAT_MAX):
            raise self._wrong(f"a repetition counts from less to more, to {_REPEAT_MAX} at most")
        return low, high

    def _atom(self) -> _Node:
        char = self._take()
        match char:
            case ".":
                return _Chars(_ALPHABET)
            case "^" | "$":
                return _Edge(char == "^")
            case "(":
                return self._group()
            case "[":
                return self._set()
            case "\\":
                return self._escaped()
            case "*" | "+" | "?" | "{":
                raise self._wrong("there is nothing to repeat")
        return self._chars({char})

    def _group(self) -> _Node:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._wrong(f"brackets are at most {_DEPTH_MAX} deep")
        if self._peek() == "?":
            self._at += 1
            opening = self._take()
            if opening in "P<":
                self._name(opening)
            elif opening != ":":
                raise self._wrong("look-around and options inside are not supported")
        node = self._either()
        if self._take() != ")":
            raise self._wrong("a bracket is not closed")
        self._depth -= 1
        return node

    def _name(self, opening: str) -> None:
        if (opening == "P" and self._take() != "<") or self._peek() in ("=", "!"):
            raise self._wrong("look-around and references back are not supported")
        while self._take() != ">":
            pass

    def _escaped(self) -> _Node:
        char = self._take()
        if char in _CLASSES:
            return _Chars(_CLASSES[char])
        if char in "Az":
            return _Edge(char == "A")
        if char.isalnum():
            raise self._wrong(f"\\{char} is not supported")
        return self._chars({char})

    def _set(self) -> _Node:
        is_negated = self._peek() == "^"
        if is_negated:
            self._at += 1
        found: set[str] = set()
        is_first = True
        while self._peek() != "]" or is_first:
            is_first = False
            if self._text.startswith("[:", self._at):
                raise self._wrong("named classes are not supported")
            found |= self._member()
        self._at += 1
        chars = self._chars(found).chars
        return _Chars(_ALPHABET - chars if is_negated else chars)

    def _member(self) -> frozenset[str]:
        """A character, a class or a range inside square brackets."""
        first = self._take()
        if first == "\\":
            first = self._take()
            if first in _CLASSES:
                return _CLASSES[first]
            if first.isalnum():
                raise self._wrong(f"\\{first} is not supported")
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return frozenset(first)
        self._at += 1
        last = self._take()
        if last == "\\":
            last = self._take()
        if last < first:
            raise self._wrong("a range goes from the lesser to the greater")
        return frozenset(char for char in _ALPHABET if first <= char <= last)

    def _chars(self, chars: set[str]) -> _Chars:
        if self._ignores_case:
            chars = {one for char in chars for one in (char.lower(), char.upper())}
        return _Chars(_ALPHABET & chars)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4


class _State:
    """Either takes one of its characters, or (chars None) leads on for nothing, at an edge of the name if it is one."""

    __slots__ = ("chars", "edge", "following")

    def __init__(self, chars: frozenset[str] | None, following: list[int], edge: _Edge | None = None) -> None:
        self.chars = chars
        self.following = following
        self.edge = edge


class Regex:
    """An expression that was read. `work` counts what matching has cost, in states visited."""

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_MAX:
            raise InvalidRegexError(f"a regular expression has at most {LENGTH_MAX} characters here")
        self.work = 0
        self._compiled_count = 0
        self._states: list[_State] = []
        self._remembered: dict[tuple[frozenset[int], str, bool], frozenset[int]] = {}
        self._end = self._add(None, [])
        self._start = self._compile(_Reader(text).read(), self._end)

    def matches(self, name: str) -> bool:
        states = frozenset((self._start,))
        for at, char in enumerate(name):
            key = (states, char, at == 0)
            known = self._remembered.get(key)
            if known is None:
                known = self._step(states, char, is_first=at == 0)
                if len(self._remembered) >= _REMEMBERED_MAX:
                    self._remembered.clear()
                self._remembered[key] = known
            if not known:
                return False
            states = known
        return self._end in self._reached(states, at_start=not name, at_end=True)

    def _step(self, states: frozenset[int], char: str, *, is_first: bool) -> frozenset[int]:
        found: set[int] = set()
        for number in self._reached(states, at_start=is_first, at_end=False):
            state = self._states[number]
            if state.chars is not None and char in state.chars:
                found.update(state.following)
        return frozenset(found)

    def _reached(self, states: frozenset[int], *, at_start: bool, at_end: bool) -> set[int]:
        """The states that can be had from these without taking a character."""
        found = set(states)
        left = list(states)
        while left:
            state = self._states[left.pop()]
            if state.chars is not None:
                continue
            if state.edge is not None and not (at_start if state.edge.is_start else at_end):
                continue
            new = [number for number in state.following if number not in found]
            found.update(new)
            left += new
        self.work += len(found)
        return found

    # Building. A node is compiled from its end: what follows it is known.

    def _add(self, chars: frozenset[str] | None, following: list[int], edge: _Edge | None = None) -> int:
        self._states.append(_State(chars, following, edge))
        return len(self._states) - 1

    def _compile(self, node: _Node, following: int) -> int:
        # Nodes are counted, not states: repetitions of nothing make none, and can be repeated in turn.
        self._compiled_count += 1
        if self._compiled_count > STATES_MAX:
            raise InvalidRegexError("the regular expression is too large; repeat less, or subscribe to names")
        match node:
            case _Chars():
                return self._add(node.chars, [following])
            case _Edge():
                return self._add(None, [following], node)
            case _All():
                for part in reversed(node.parts):
                    following = self._compile(part, following)
                return following
            case _Either():
                return self._add(None, [self._compile(part, following) for part in node.parts])
            case _Repeat():
                return self._compile_repeat(node, following)

    def _compile_repeat(self, node: _Repeat, following: int) -> int:
        if node.most is None:
            loop = self._add(None, [following])
            self._states[loop].following.append(self._compile(node.part, loop))
            following = loop
        else:
            end = following
            for _ in range(node.most - node.least):
                following = self._add(None, [end, self._compile(node.part, following)])
        for _ in range(node.least):
            following = self._compile(node.part, following)
        return following
