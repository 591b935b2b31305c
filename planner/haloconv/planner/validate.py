"""Argument checks shared by the frozen dataclasses: type first, then range."""

import operator
from collections.abc import Iterable
from typing import SupportsIndex

__all__ = ["check_bool", "check_int", "check_ints"]


def check_bool(name: str, value: object) -> bool:
    """Return ``value`` if it is a truth value.

    Raises
    ------
    TypeError
        If it is anything else; a text such as "no" would count as true.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return value


def check_int(
    name: str, value: SupportsIndex, minimum: int | None = None, maximum: int | None = None
) -> int:
    """Return ``value`` as a plain int within [minimum, maximum].

    Raises
    ------
    TypeError
        If the value is not an integer.
    ValueError
        If it lies outside the range.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, not {value!r}")
    if minimum is not None and number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, not {number}")
    if maximum is not None and number > maximum:
        raise ValueError(f"{name} must be at most {maximum}, not {number}")
    return number


def check_ints(
    name: str,
    values: Iterable[SupportsIndex],
    count: int,
    minimum: int | None = None,
    maximum: int | None = None,
) -> tuple[int, ...]:
    """Return ``values`` as a tuple of exactly ``count`` ints, each within [minimum, maximum].

    Raises
    ------
    TypeError
        If it is not an iterable of integers.
    ValueError
        If the count or a value is wrong.
    """
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} must be {count} integers, not {values!r}")
    items = tuple(values)
    if len(items) != count:
        raise ValueError(f"{name} must be {count} integers, not {items!r}")
    return tuple(check_int(name, item, minimum, maximum) for item in items)
