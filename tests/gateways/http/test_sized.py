"""Requests whose answers are large, on a server with little memory for them."""

from tests.gateways.http.serving import Client, get, serving

from headrace.gateways.answers import AnswersConfig

MIB = 1024 * 1024
# More than the kernel keeps for a client that does not read.
BIG = 32 * MIB
ANSWERS = AnswersConfig(bytes_max=BIG + BIG // 2, wait_ms_max=20_000, stalled_ms_max=3_000)


def sized(size: int) -> bytes:
    return get(f"/sized?{size}")


def test_pipelined_requests_begin_one_at_a_time_and_are_answered_in_order() -> None:
    sizes = [BIG, 3 * MIB, 100, BIG, 5 * MIB]
    with serving(answers=ANSWERS) as server, Client(server) as client:
        client.send(b"".join(map(sized, sizes)) + get())
        server.wait(lambda: server.served == [str(BIG)], "the first has begun, and no other")
        assert server.answers.used_bytes >= BIG
        for size in sizes:
            assert len(client.answer().body) == size
        assert client.answer().status == 200
        assert server.served == [*map(str, sizes), "/hello"]
        server.elapse(0)
        server.wait(lambda: server.answers.used_bytes == 0, "all is given back")


def test_a_client_that_does_not_read_is_disconnected_once_others_wait_for_what_it_holds() -> None:
    with serving(answers=ANSWERS) as server, Client(server, receive_bytes=4096) as stuck, Client(server) as other:
        stuck.send(sized(BIG))
        server.wait(lambda: len(server.served) == 1, "its answer is made")
        server.elapse(ANSWERS.stalled_ms_max * 2)
        assert server.counters.closed_for_cause == {}, "nobody waits for it"
        other.send(sized(BIG))
        server.wait(lambda: server.answers.waiting_count == 1, "the other waits")
        with Client(server) as small:
            small.send(get())
            assert small.answer().status == 200, "small answers wait for nothing"
        server.elapse(ANSWERS.stalled_ms_max)
        assert len(other.answer().body) == BIG
        assert server.counters.closed_for_cause == {"answers_not_taken": 1}


def test_a_request_that_has_waited_too_long_is_refused_and_may_be_repeated() -> None:
    config = AnswersConfig(bytes_max=BIG, wait_ms_max=20_000, stalled_ms_max=60_000)
    with serving(answers=config, write_deadline_ms=60_000) as server, Client(server) as client:
        server.call(lambda: server.answers.charge(BIG))
        client.send(sized(MIB))
        server.wait(lambda: server.answers.waiting_count == 1, "it waits")
        server.elapse(1_000)
        assert server.served == []
        server.elapse(config.wait_ms_max)
        answer = client.answer()
        assert (answer.status, answer.problem["code"], answer.problem["retriable"]) == (503, "overloaded", True)
        assert answer.headers["retry-after"] == "1"
        assert "answers.bytes_max" in answer.problem["detail"]
        server.call(lambda: server.answers.charge(-BIG))
        client.send(sized(MIB))
        assert len(client.answer().body) == MIB
        assert server.served == [str(MIB)], "the refused one had no effect"


def test_an_answer_larger_than_all_memory_for_answers_is_served() -> None:
    with serving(answers=AnswersConfig(bytes_max=MIB)) as server, Client(server) as client:
        client.send(sized(BIG) * 2)
        for _ in range(2):
            assert len(client.answer().body) == BIG


def test_a_client_that_goes_away_gives_its_place_in_the_line_to_the_next() -> None:
    with serving(answers=ANSWERS) as server, Client(server) as other:
        server.call(lambda: server.answers.charge(BIG))
        with Client(server) as gone:
            gone.send(sized(BIG))
            server.wait(lambda: server.answers.waiting_count == 1, "it waits")
        server.elapse(server.limits.linger_ms)
        server.wait(lambda: server.answers.waiting_count == 0, "it has left the line")
        other.send(sized(BIG))
        server.wait(lambda: server.answers.waiting_count == 1, "the other waits")
        server.call(lambda: server.answers.charge(-BIG))
        assert len(other.answer().body) == BIG
