"""Prices that measurements were made from are found again."""

from dataclasses import replace

import pytest

from graphopt.calibration.corpus import corpus
from graphopt.calibration.fit import apply, fit, priced, quality, rows
from graphopt.target import ORT

TRUTH = apply(
    ORT.prices,
    {
        "elements.Tanh": 3e-9,
        "efficiency.blocked dense": 0.45,
        "bandwidth.0": 40e9,
        "powers.2.0": 2e-9,
        "strided.Softmax": 1e-9,
    },
)


def made_up(every: int = 1) -> dict[str, float]:
    return {
        row.call.text(): priced(ORT, TRUTH, row) - TRUTH.node for row in rows(dict.fromkeys(corpus()[::every], 0.0))
    }


def test_every_common_call_can_be_priced() -> None:
    assert len(rows(dict.fromkeys(corpus(), 0.0))) == len(corpus()) == len(set(corpus()))


def test_the_fit_predicts_what_it_was_fitted_to() -> None:
    found = rows(made_up())
    numbers = fit(ORT, found)
    before, after = quality(ORT, ORT.prices, found), quality(ORT, apply(ORT.prices, numbers), found)
    assert after["within 1.5x"] > 0.97 > before["within 1.5x"]
    assert after["rank correlation"] > before["rank correlation"]
    assert numbers["elements.Tanh"] == pytest.approx(3e-9, rel=0.1)
    assert numbers["efficiency.blocked dense"] == pytest.approx(0.45, rel=0.1)


def test_what_fits_already_changes_little() -> None:
    found = [replace(row, seconds=priced(ORT, ORT.prices, row) - ORT.prices.node) for row in rows(made_up())]
    before, after = ORT.prices, apply(ORT.prices, fit(ORT, found))
    assert all(priced(ORT, after, row) == pytest.approx(priced(ORT, before, row), rel=0.05) for row in found)


def test_the_same_measurements_give_the_same_prices() -> None:
    times = made_up(9)
    backwards = dict(reversed(times.items()))
    assert fit(ORT, rows(times)) == fit(ORT, rows(backwards))


def test_numbers_go_where_they_are_named() -> None:
    found = apply(ORT.prices, {"node": 2.0, "bandwidth.1": 3.0, "powers.2.0": 4.0, "elements.New": 5.0})
    assert (found.node, found.bandwidth[1], found.powers[2.0], found.elements["New"]) == (2.0, 3.0, 4.0, 5.0)
    assert found.bandwidth[0] == ORT.prices.bandwidth[0]


def test_too_few_measurements_tell_nothing() -> None:
    assert quality(ORT, ORT.prices, []) == {}
    assert fit(ORT, []) == {}
