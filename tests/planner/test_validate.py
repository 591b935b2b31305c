"""Argument checks: what passes, and the message of each refusal."""

import re

import numpy as np
import pytest

from haloconv.planner.validate import check_bool, check_int, check_ints


def test_truth_values_alone_are_truth_values():
    assert check_bool("bias", True) is True
    for value in ("no", 0, None, np.True_):
        with pytest.raises(TypeError, match="bias must be True or False, not"):
            check_bool("bias", value)


def test_integers_of_any_kind_become_plain_ints():
    for value in (3, np.int8(3), np.uint64(3)):
        found = check_int("n", value, 3, 3)
        assert found == 3 and type(found) is int
    assert check_int("n", -(10**30)) == -(10**30)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (1.0, TypeError, "n must be an integer, not 1.0"),
        ("1", TypeError, "n must be an integer, not '1'"),
        (None, TypeError, "n must be an integer, not None"),
        (True, TypeError, "n must be an integer, not True"),
        (1, ValueError, "n must be at least 2, not 1"),
        (6, ValueError, "n must be at most 5, not 6"),
    ],
)
def test_wrong_integer(value, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        check_int("n", value, 2, 5)


def test_several_integers_become_a_tuple():
    for values in ([1, 2], (1, 2), np.array([1, 2]), iter([1, 2])):
        found = check_ints("p", values, 2, 1, 2)
        assert found == (1, 2) and all(type(item) is int for item in found)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (3, TypeError, "p must be 2 integers, not 3"),
        ("12", TypeError, "p must be 2 integers, not '12'"),
        (b"12", TypeError, "p must be 2 integers, not b'12'"),
        ((1, 2, 3), ValueError, "p must be 2 integers, not (1, 2, 3)"),
        ((1, 2.5), TypeError, "p must be an integer, not 2.5"),
        ((1, 0), ValueError, "p must be at least 1, not 0"),
        ((1, 9), ValueError, "p must be at most 8, not 9"),
    ],
)
def test_wrong_integers(values, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        check_ints("p", values, 2, 1, 8)
