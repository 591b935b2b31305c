"""The sequencer's program as data: its encoding, and what a step may not do."""

import pytest

from haloconv.planner.descriptor import FIELDS
from haloconv.rtl import sequencer_program
from haloconv.rtl.sequencer_program import (
    CELLS,
    LOOPS,
    PROGRAM,
    Capture,
    Left,
    Pick,
    Result,
    Right,
    Row,
    rows,
)

WORDS = {field.name: field.word for field in FIELDS}


def test_every_code_fits_its_place_in_a_row():
    most = {name: (1 << width) - 1 for name, width in Row.WIDTHS.items()}
    for row in rows():
        for name, largest in most.items():
            assert 0 <= getattr(row, name) <= largest, name
    for codes, name in (
        (Left, "left"), (Right, "right"), (Pick, "pick"), (Capture, "capture"), (Result, "result"),
    ):  # fmt: skip
        assert max(codes) <= most[name]
    assert len(CELLS) <= most["cell"] + 1
    assert len(LOOPS) <= most["loop"] + 1
    assert max(WORDS.values()) <= most["word"]


def test_steps_follow_each_other_through_the_rows():
    found = rows()
    assert len(found) == len(PROGRAM) + 2
    for number, step in enumerate(PROGRAM):
        if step.cell is not None:
            assert CELLS[found[number].cell] == step.cell
        if step.word is not None:
            assert found[number].word == WORDS[step.word]
        assert found[number].pick == step.pick
        assert LOOPS[found[number].loop] == step.loop
        assert (found[number + 1].left, found[number + 1].right) == (step.left, step.right)
        assert found[number + 1].capture == step.capture
        assert found[number + 2].result == step.result
    # The last step's sum tells that the tile is complete.
    assert [row.result for row in found].index(Result.HIGH_Q) == len(found) - 1


def test_everything_is_taken_once():
    for codes, used in (
        (Capture, [step.capture for step in PROGRAM]),
        (Result, [step.result for step in PROGRAM]),
    ):
        for code in codes:
            assert used.count(code) == 1 or not code, code
    written = [step.cell for step in PROGRAM if step.left in (Left.ROOT, Left.NESTED)]
    assert sorted(map(str, written)) == sorted(CELLS)


def test_words_lie_where_their_lowest_bits_can_choose():
    """Start and step, and the values of a tile and of the last, differ in the last bit alone."""
    pairs = {
        Pick.STEP: lambda name: WORDS[name.replace("_start", "_step")],
        Pick.LAST: lambda name: WORDS[f"{name}_last"],
        Pick.PIXEL: lambda name: WORDS[f"{name}_last"],
        Pick.RUN: lambda name: WORDS[f"{name}_last"],
        Pick.LAST_M: lambda name: WORDS[f"{name}_m"],
    }
    checked = 0
    for step in PROGRAM:
        if step.pick == Pick.WEIGHTS:
            first = WORDS["weight_bytes"]
            assert first % 4 == 0
            assert WORDS["weight_bytes_m"] == first + 1
            assert WORDS["weight_bytes_c"] == first + 2
            assert WORDS["weight_bytes_mc"] == first + 3
        elif step.pick != Pick.NONE:
            assert step.word is not None
            assert WORDS[step.word] % 2 == 0
            if step.pick != Pick.STEP or step.word.endswith("_start"):
                assert pairs[step.pick](step.word) == WORDS[step.word] + 1, step.word
                checked += 1
    assert checked == 17
    for address, behind in (
        ("input_address", "in_g_step"), ("weight_address", "weight_g_step"),
        ("bias_address", "bias_g_step"), ("scale_address", "scale_g_step"),
        ("output_address", "out_g_step"), ("low_q", "low_q_step"),
    ):  # fmt: skip
        assert WORDS[behind] == WORDS[address] + 1


def test_a_cell_that_is_not_written_yet_cannot_be_read(monkeypatch):
    number = next(i for i, step in enumerate(PROGRAM) if step.cell == "out_m")
    early = list(PROGRAM)
    reader = next(
        i for i, step in enumerate(PROGRAM) if step.cell == "out_m" and step.left == Left.CELL
    )
    early[number + 2], early[reader] = early[reader], early[number + 2]
    monkeypatch.setattr(sequencer_program, "PROGRAM", tuple(early))
    with pytest.raises(ValueError, match="Cell out_m must not be read before it is written"):
        rows()
