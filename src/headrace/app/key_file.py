"""The file of access keys, read once at the start."""

from pathlib import Path

from headrace.model.errors import ConfigurationError
from headrace.security.access_keys import AccessKeys, parse_access_keys


def read_access_keys(file: str) -> AccessKeys:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"sqs.keys_file: {file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"sqs.keys_file: {file} is not UTF-8 text at byte {error.start}") from None
    return parse_access_keys(text, file=file)
