"""The report on two trees says which is faster, by the median of the turns."""

import pytest
from benchmarks import beside
from benchmarks.beside import Found


@pytest.mark.parametrize(("rates", "is_met"), [((970.0, 980.0, 500.0), True), ((960.0, 969.0, 2000.0), False)])
def test_a_work_is_held_against_the_other_tree_by_the_median_of_its_turns(
    rates: tuple[float, ...], is_met: bool
) -> None:
    turns = {"REST, send 1": [(Found(rate, 20.0), Found(1000.0, 10.0)) for rate in rates]}
    report = beside.report(turns)
    assert [goal.is_met for goal in report.goals] == [is_met]
    assert report.rows[0][-1] == "2.000", "the node took twice the CPU time"


def test_a_checkout_without_an_environment_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        beside.main(["/nowhere"])
    assert "run `make run` once in /nowhere" in capsys.readouterr().err
