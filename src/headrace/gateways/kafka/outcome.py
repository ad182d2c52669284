"""The code of one thing among several that a request asked for."""

from headrace.gateways.kafka.context import Context
from headrace.gateways.kafka.errors import code_of, read_code_of


def outcome_code(context: Context, error: BaseException | None, *, is_read: bool = False) -> int:
    """0 where it went well; an error is counted, and logged if no rule expected it."""
    if error is None:
        return 0
    code = (read_code_of if is_read else code_of)(context.explain(error))
    context.counters.count_error(code)
    return code
