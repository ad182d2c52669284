"""What PySpark prints of a JVM that ends."""

import socket

import pytest
from pyspark.accumulators import AccumulatorTCPServer

from headrace.spark import jvm


@pytest.mark.parametrize(("error", "is_printed"), [(EOFError(), False), (ValueError("a fault"), True)])
def test_the_end_of_the_jvm_prints_no_stack_and_a_fault_does(
    error: Exception, is_printed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(AccumulatorTCPServer, "handle_error", AccumulatorTCPServer.handle_error)
    jvm._let_it_end_quietly()
    server = AccumulatorTCPServer.__new__(AccumulatorTCPServer)
    with socket.socket() as request:
        try:
            raise error
        except (EOFError, ValueError):
            server.handle_error(request, ("127.0.0.1", 1))
    assert ("Traceback" in capsys.readouterr().err) is is_printed
