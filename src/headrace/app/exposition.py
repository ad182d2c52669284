"""Prometheus's text format 0.0.4, written family by family."""

from collections.abc import Iterable, Mapping

from headrace.log.commit import SyncTime

Labels = Mapping[str, str]
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Exposition:
    """Lines of the text format, family by family."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(self, name: str, kind: str, help: str, samples: Iterable[tuple[Labels, float]]) -> None:
        self._begin(name, kind, help)
        for labels, value in samples:
            self._sample(name, labels, value)

    def one(self, name: str, kind: str, help: str, value: float) -> None:
        self.family(name, kind, help, [({}, value)])

    def histogram(self, name: str, help: str, times: Iterable[tuple[Labels, SyncTime]]) -> None:
        self._begin(name, "histogram", help)
        for labels, time in times:
            below = 0
            for bound_us, count in zip(SyncTime.BOUNDS_US, time.counts, strict=False):
                below += count
                self._sample(f"{name}_bucket", {**labels, "le": f"{bound_us / 1_000_000:g}"}, below)
            count_all = sum(time.counts)
            self._sample(f"{name}_bucket", {**labels, "le": "+Inf"}, count_all)
            self._sample(f"{name}_sum", labels, time.sum_us / 1_000_000)
            self._sample(f"{name}_count", labels, count_all)

    def encode(self) -> bytes:
        return "".join(self._lines).encode()

    def _begin(self, name: str, kind: str, help: str) -> None:
        self._lines.append(f"# HELP {name} {help}\n# TYPE {name} {kind}\n")

    def _sample(self, name: str, labels: Labels, value: float) -> None:
        inner = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
        shown = value if isinstance(value, int) else repr(value)
        self._lines.append(f"{name}{{{inner}}} {shown}\n" if inner else f"{name} {shown}\n")


def by_label(label: str, counts: Mapping[str, int]) -> list[tuple[Labels, float]]:
    return [({label: name}, counts[name]) for name in sorted(counts)]
