"""Who loses its place when connections run out, by the rules of `gateways.connections` alone."""

from headrace.gateways.connections import DISPLACED_AFTER_MS, Connections, counted_address
from headrace.testing.clock import SimulatedClock


class Guest:
    """A connection."""

    def __init__(self, address: str = "a") -> None:
        self.address = address
        self.completed_ms: int | None = None
        self.is_busy = False
        self.is_displaced = False

    def displace(self) -> None:
        self.is_displaced = True

    def check_deadlines(self, now_ms: int) -> None: ...

    def drain(self) -> None: ...

    def abort(self) -> None: ...


class House:
    def __init__(self, *, places: int, for_address: int = 100) -> None:
        clock = SimulatedClock()
        self.rooms = Connections(clock=clock, sweep_ms=500, connections_max=places, for_address_max=for_address)

    def come(self, address: str = "a") -> Guest:
        guest = Guest(address)
        assert self.rooms.admit(guest)
        return guest

    def is_full(self, address: str = "a") -> bool:
        return not self.rooms.admit(Guest(address))

    def complete(self, guest: Guest) -> None:
        guest.completed_ms = self.rooms.now_ms
        self.rooms.prove(guest)

    def elapse(self, ms: int) -> None:
        self.rooms.now_ms += ms


def test_the_oldest_that_never_completed_a_request_loses_its_place_first() -> None:
    house = House(places=3)
    served, first, second = house.come(), house.come(), house.come()
    house.complete(served)
    house.elapse(DISPLACED_AFTER_MS * 10)
    third = house.come()
    assert [one.is_displaced for one in (served, first, second, third)] == [False, True, False, False]
    house.come()
    assert [one.is_displaced for one in (served, second, third)] == [False, True, False]
    assert len(house.rooms.connections) == 3


def test_after_them_the_one_that_completed_its_last_request_the_longest_ago() -> None:
    house = House(places=3)
    guests = [house.come() for _ in range(3)]
    for guest in guests:
        house.complete(guest)
        house.elapse(1)
    house.complete(guests[0])
    assert house.is_full(), "all were served a moment ago"
    house.elapse(DISPLACED_AFTER_MS)
    house.come()
    assert [one.is_displaced for one in guests] == [False, True, False]


def test_a_request_in_progress_keeps_its_connection() -> None:
    house = House(places=2)
    busy, idle = house.come(), house.come()
    busy.is_busy = True
    house.complete(idle)
    house.elapse(DISPLACED_AFTER_MS)
    house.come()
    assert (busy.is_displaced, idle.is_displaced) == (False, True)
    for guest in house.rooms.connections:
        guest.is_busy = True  # type: ignore[misc]
    assert house.is_full()
    assert len(house.rooms.connections) == 2


def test_an_address_with_all_its_places_gives_up_one_of_its_own() -> None:
    house = House(places=10, for_address=2)
    other = house.come("b")
    first, second = house.come(), house.come()
    third = house.come()
    assert [one.is_displaced for one in (other, first, second, third)] == [False, True, False, False]
    second.is_busy = third.is_busy = True
    assert house.is_full("a")
    house.come("b")
    house.rooms.remove(second)
    house.come("a")


def test_a_connection_that_has_left_is_not_counted_twice() -> None:
    house = House(places=2, for_address=2)
    first = house.come()
    house.rooms.remove(first)
    house.rooms.remove(first)
    house.come()
    house.come()
    house.come()
    assert len(house.rooms.connections) == 2


def test_addresses_of_one_network_of_ipv6_count_as_one() -> None:
    assert counted_address(("192.0.2.7", 1)) == "192.0.2.7"
    assert counted_address(("::ffff:192.0.2.7", 1, 0, 0)) == "192.0.2.7"
    assert counted_address(("2001:db8::1", 1, 0, 0)) == counted_address(("2001:db8::ffff:1", 2, 0, 0))
    assert counted_address(("2001:db8::1", 1, 0, 0)) != counted_address(("2001:db8:0:1::1", 1, 0, 0))
    assert counted_address(("fe80::1%eth0", 1, 0, 0)) == "fe80::/64"
    assert counted_address(None) == "None"
