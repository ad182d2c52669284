"""The file of access keys, and secrets that stay secret."""

import pytest

from headrace.model.errors import ConfigurationError
from headrace.security.access_keys import parse_access_keys


def test_each_line_is_a_key() -> None:
    keys = parse_access_keys('AKONE = "first"\nAKTWO = "second"\n', file="keys.toml")
    assert {name: secret.reveal() for name, secret in keys.items()} == {"AKONE": "first", "AKTWO": "second"}


def test_a_secret_does_not_show_itself() -> None:
    keys = parse_access_keys('AKONE = "canary"', file="keys.toml")
    assert "canary" not in repr(keys)
    assert "canary" not in f"{keys['AKONE']}"


@pytest.mark.parametrize("text", ["", "AKONE = 5", 'AKONE = ""', 'AKONE = "canary', '"a b" = "canary"', "[canary]"])
def test_a_file_that_cannot_be_obeyed_is_refused_without_its_secrets(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"keys\.toml") as refused:
        parse_access_keys(text, file="keys.toml")
    assert '"canary' not in str(refused.value)
