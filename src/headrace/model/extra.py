"""The packages that only some commands need, and how a user installs them. No index carries headrace itself."""


def how_to_install(extra: str) -> str:
    return f"run `pip install '.[{extra}]'` in a clone of headrace, or install its wheel with the extra [{extra}]"
