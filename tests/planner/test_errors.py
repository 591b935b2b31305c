"""Errors that users can act on are ValueErrors, so that callers need not know them."""

import pytest

from haloconv.planner import errors
from haloconv.planner.errors import PlanError, UnsupportedModel


def test_kinds():
    assert errors.__all__ == ["PlanError", "UnsupportedModel"]
    assert issubclass(PlanError, ValueError)
    assert issubclass(UnsupportedModel, PlanError)


@pytest.mark.parametrize("kind", [PlanError, UnsupportedModel])
def test_message_is_kept_and_one_handler_takes_all(kind):
    with pytest.raises(ValueError, match=r"^raise input_bytes$") as caught:
        raise kind("raise input_bytes")
    assert isinstance(caught.value, PlanError) and str(caught.value) == "raise input_bytes"
