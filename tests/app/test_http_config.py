"""The HTTP listeners' settings: where administrators are served, and the names a node goes by."""

import pytest

from headrace.app.config import load
from headrace.model.address import Address
from headrace.model.errors import ConfigurationError


@pytest.mark.parametrize(
    ("listen", "admin"), [("127.0.0.1:8080", 8081), ("127.0.0.1:0", 0), ("127.0.0.1:65535", 65534)]
)
def test_administrators_are_served_on_the_next_port_of_this_machine(listen: str, admin: int) -> None:
    config = load(environment={"HEADRACE_HTTP_LISTEN": listen}).config
    assert config.http.admin == Address("127.0.0.1", admin)


def test_the_administrators_listener_may_be_elsewhere_and_not_where_another_is() -> None:
    given = {"HEADRACE_HTTP_ADMIN_LISTEN": "127.0.0.1:9999"}
    assert load(environment=given).config.http.admin == Address("127.0.0.1", 9999)
    for taken in ("127.0.0.1:8080", "127.0.0.1:9092"):
        with pytest.raises(ConfigurationError, match=r"http\.admin_listen.*choose another port"):
            load(environment={"HEADRACE_HTTP_ADMIN_LISTEN": taken})


def test_administrators_from_other_machines_need_a_word_that_this_is_understood() -> None:
    given = {"HEADRACE_HTTP_ADMIN_LISTEN": "0.0.0.0:8081"}
    with pytest.raises(ConfigurationError, match="insecure_listen"):
        load(environment=given)
    assert load(environment=given | {"HEADRACE_INSECURE_LISTEN": "true"}).config.http.admin.is_wildcard


def test_names_are_a_list_in_a_file_and_text_with_commas_elsewhere() -> None:
    given = {"HEADRACE_HTTP_HOSTS": "queue.internal, q.example,"}
    assert load(environment=given).config.http.hosts == ("queue.internal", "q.example")
