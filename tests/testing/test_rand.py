from headrace.testing.rand import SeededRand


def test_a_seed_gives_the_same_entropy_again_and_another_seed_other() -> None:
    def draw(seed: int) -> tuple[bytes, float, str]:
        rand = SeededRand(seed)
        return rand.bytes(8), rand.uniform(1, 2), str(rand.uuid())

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    assert SeededRand(1).uuid().version == 4
