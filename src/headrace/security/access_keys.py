"""Access keys of programs: an id that is no secret, and the secret that they sign requests with.

They are kept in a TOML file of their own, so that the node's configuration can be shown to anybody:

    AKIDORDERS = "the secret of the orders service"
"""

import tomllib
from collections.abc import Mapping

from headrace.model.errors import ConfigurationError
from headrace.security.secret import Secret

AccessKeys = Mapping[str, Secret]


def parse_access_keys(text: str, *, file: str) -> dict[str, Secret]:
    """Read the file's text. What is wrong is said without a word of what is secret."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # The parser's own message may quote the line.
        raise ConfigurationError(
            f'{file} is not valid TOML; write one line for each key: ID = "secret" ({type(error).__name__})'
        ) from None
    if not table:
        raise ConfigurationError(f'{file} has no keys; write one line for each: ID = "secret"')
    for name, value in table.items():
        if not isinstance(value, str) or not value:
            raise ConfigurationError(f"{file}: {name} takes its secret as text in quotes")
        if not name.isascii() or not name.isalnum():
            raise ConfigurationError(f"{file}: {name} is no access key id; use letters and digits only")
    return {name: Secret(value) for name, value in table.items()}
