"""Placement of blocks by lifetime, checked byte by byte."""

import random
from itertools import combinations

import pytest

from haloconv.planner.allocate import Lifetime, allocate


def rounded(size, alignment):
    return -(-size // alignment) * alignment


def check(blocks, alignment):
    """Every byte of every step belongs to one block at most; return the total."""
    offsets, total = allocate(blocks, alignment)
    assert set(offsets) == {block.key for block in blocks}
    owners = {}
    for block in blocks:
        at = offsets[block.key]
        assert at >= 0 and at % alignment == 0
        for step in range(block.first, block.last + 1):
            for byte in range(at, at + block.size):
                assert owners.setdefault((step, byte), block.key) == block.key
    ends = [offsets[block.key] + block.size for block in blocks]
    assert total == max(ends, default=0)
    assert total <= sum(rounded(block.size, alignment) for block in blocks)
    # No placement can do with less than what lives in one step.
    steps = {step for block in blocks for step in (block.first, block.last)}
    for step in steps:
        assert total >= sum(b.size for b in blocks if b.first <= step <= b.last)
    return total


@pytest.mark.parametrize("seed", range(30))
def test_random_blocks_do_not_overlap(seed):
    numbers = random.Random(seed)
    blocks = []
    for key in range(numbers.randint(1, 14)):
        first = numbers.randint(0, 8)
        size = numbers.choice([1, 2, 7, 16, 33, 64])
        blocks.append(Lifetime(100 + key, size, first, numbers.randint(first, 8)))
    check(blocks, numbers.choice([1, 4, 16]))


def test_nothing_takes_nothing():
    assert allocate([], 64) == ({}, 0)


@pytest.mark.parametrize("length", [3, 10])
def test_a_chain_alternates_between_two_places(length):
    blocks = [Lifetime(key, 100, key, key + 1) for key in range(length)]
    assert check(blocks, 64) == 128 + 100
    offsets, _ = allocate(blocks, 64)
    assert {offsets[key] for key in range(0, length, 2)} == {0}
    assert {offsets[key] for key in range(1, length, 2)} == {128}


def test_blocks_that_meet_in_a_step_are_both_alive_in_it():
    first, second = Lifetime(0, 8, 0, 3), Lifetime(1, 8, 3, 5)
    assert allocate([first, second], 8)[1] == 16
    assert allocate([first, Lifetime(1, 8, 4, 5)], 8)[1] == 8


def test_a_residual_branch_keeps_its_place():
    # 0 is read again in step 3, as the second operand of a sum.
    blocks = [Lifetime(0, 64, 0, 3), Lifetime(1, 64, 1, 2), Lifetime(2, 64, 2, 3)]
    blocks.append(Lifetime(3, 64, 3, 4))
    assert check(blocks, 64) == 192
    offsets, _ = allocate(blocks, 64)
    assert offsets[3] == offsets[1]


def test_a_gap_is_filled_by_what_fits_it():
    # 1 lies between 0 and 2; when it is gone, 3 fits where it was and 4 does not.
    blocks = [
        Lifetime(0, 64, 0, 9),
        Lifetime(1, 48, 0, 2),
        Lifetime(2, 40, 0, 9),
        Lifetime(3, 30, 3, 9),
        Lifetime(4, 20, 3, 9),
    ]
    offsets, total = allocate(blocks, 16)
    check(blocks, 16)
    assert (offsets[0], offsets[1], offsets[2], offsets[3]) == (0, 64, 112, 64)
    assert offsets[4] == 160 and total == 180


def test_the_order_of_the_blocks_does_not_matter():
    blocks = [Lifetime(key, 10 * (key % 3 + 1), key % 4, key % 4 + 2) for key in range(9)]
    expected = allocate(blocks, 8)
    for pair in combinations(range(9), 2):
        swapped = list(blocks)
        swapped[pair[0]], swapped[pair[1]] = swapped[pair[1]], swapped[pair[0]]
        assert allocate(swapped, 8) == expected
