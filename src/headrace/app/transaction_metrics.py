"""What a node counts about transactions. `docs/metrics.md` says what each series is for."""

from collections import Counter

from headrace.app.exposition import Exposition
from headrace.broker.transaction.coordinator import Coordinator
from headrace.folds.transaction.transaction import State


def write_transactions(out: Exposition, coordinator: Coordinator, *, wall_ms: int) -> None:
    states: Counter[str] = Counter({state.value: 0 for state in State})
    oldest_ms = 0
    for transaction in coordinator.transactions():
        states[transaction.state.value] += 1
        if transaction.state not in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
            oldest_ms = max(oldest_ms, wall_ms - transaction.started_ms)
    out.family(
        "headrace_transactional_ids",
        "gauge",
        "Transactional ids that this node coordinates, by the state of their transaction.",
        [({"state": state}, count) for state, count in sorted(states.items())],
    )
    out.one(
        "headrace_transaction_oldest_open_seconds",
        "gauge",
        "Age of the oldest transaction that has not ended: readers of committed messages stand at it.",
        oldest_ms / 1000,
    )
    counts = coordinator.counts
    out.family(
        "headrace_transactions_ended_total",
        "counter",
        "Transactions that were decided by this process.",
        [({"outcome": "committed"}, counts.committed), ({"outcome": "aborted"}, counts.aborted)],
    )
    out.one(
        "headrace_transactions_timed_out_total",
        "counter",
        "Transactions that were aborted because their time was over.",
        counts.timed_out,
    )
