"""The fixed program that the tile sequencer runs for each tile, and its encoding.

Each step of the program reads a cell (a running value) and a word of the descriptor, adds the two,
and stores the sum where it came from, or hands it to a field of the tile. Steps follow each other
by one cycle; a step reads in its own cycle, loads both operands in the next, and has its sum in the
one after that, while the next steps do likewise.
"""

from dataclasses import dataclass
from enum import IntEnum, auto

from haloconv.planner.descriptor import FIELDS

__all__ = [
    "CELLS",
    "LOOPS",
    "PROGRAM",
    "Capture",
    "Left",
    "Pick",
    "Result",
    "Right",
    "Row",
    "rows",
]

LOOPS = ("g", "h", "w", "m", "c")
COUNTS = ("groups", "tiles_h", "tiles_w", "tiles_m", "tiles_c")
CELLS = (
    *(f"left_{loop}" for loop in LOOPS),
    "row", "column", "low_q", "in_h", "in_w", "in_g", "in_m", "in_c",
    "weight_g", "weight_m", "weight_c", "bias_g", "bias_m", "scale_g", "scale_m",
    "out_g", "out_m", "out_h", "out_w",
)  # fmt: skip
"""Values that are kept from tile to tile."""
_WORDS = {field.name: field.word for field in FIELDS}


class Left(IntEnum):
    """The left operand."""

    ZERO = 0
    RESULT = auto()
    """The sum of the step before."""
    CELL = auto()
    ROOT = auto()
    """The cell, which is written; zero where its loop starts over."""
    NESTED = auto()
    """The cell, which is written; the sum of the step before where its loop starts over."""
    CELL_IF_ROW_BEFORE = auto()
    """The cell where the tile begins before the first row, else zero."""
    CELL_IF_COLUMN_BEFORE = auto()
    CELL_UNLESS_COLUMN_BEFORE = auto()
    CELL_IF_RUN_BEFORE = auto()
    """As CELL_IF_COLUMN_BEFORE, but zero where a run is one pixel."""


class Right(IntEnum):
    """The right operand."""

    ZERO = 0
    WORD = auto()
    MINUS_WORD = auto()
    WORD_IF_MOVED = auto()
    """Where the loop goes on or starts over."""
    WORD_IF_ADVANCED = auto()
    """Where the loop goes on."""
    COUNT = auto()
    """Minus the trips where the loop starts over, one where it goes on."""
    RESULT = auto()
    MINUS_RESULT_IF_BELOW = auto()
    """Where the sum of the step before is negative."""
    MINUS_RESULT_IF_ABOVE = auto()
    """Where it is not."""
    MINUS_RESULT_IF_RUN_OVER = auto()
    """Where the tile ends behind the last column, and runs are rows."""
    RESULT_UNLESS_ROW_BEFORE = auto()


class Pick(IntEnum):
    """What goes into the lowest bits of the word's number."""

    NONE = 0
    STEP = auto()
    """1 where the loop goes on: the word behind the start is the step."""
    LAST = auto()
    """1 in the last tile of the loop."""
    LAST_M = auto()
    PIXEL = auto()
    """1 in the last tile of the loop over a pixel's channels."""
    RUN = auto()
    """1 in the last tile of the loop that sets the length of runs."""
    WEIGHTS = auto()
    """Both of the last along m and the last along c."""


class Capture(IntEnum):
    """Fields that are parts of the word itself."""

    NONE = 0
    ROWS = auto()
    COLUMN_GROUPS = auto()
    COLUMN_TAIL = auto()
    CHANNELS = auto()
    CHANNEL_TAIL = auto()
    STEPS = auto()
    PIXEL = auto()
    WEIGHT_LENGTH = auto()


class Result(IntEnum):
    """Where the sum goes, beside the cell."""

    NONE = 0
    ROW = auto()
    SKIP_ROWS = auto()
    ROWS = auto()
    COLUMN = auto()
    SKIP_COLUMNS = auto()
    COLUMN_OVER = auto()
    COLUMNS = auto()
    INPUT_ADDRESS = auto()
    INPUT_LENGTH = auto()
    WEIGHT_ADDRESS = auto()
    BIAS_ADDRESS = auto()
    SCALE_ADDRESS = auto()
    OUTPUT_ADDRESS = auto()
    LOW_Q = auto()
    HIGH_Q = auto()
    """The last of the program."""


@dataclass(frozen=True)
class Step:
    """One step. ``word`` names a descriptor field, ``loop`` whose flags it uses."""

    left: Left
    right: Right
    result: Result = Result.NONE
    cell: str | None = None
    word: str | None = None
    pick: Pick = Pick.NONE
    loop: str = "g"
    capture: Capture = Capture.NONE


def _count(loop: str) -> Step:
    word = COUNTS[LOOPS.index(loop)]
    return Step(Left.ROOT, Right.COUNT, cell=f"left_{loop}", word=word, loop=loop)


def _root(cell: str, word: str, loop: str, result: Result = Result.NONE) -> Step:
    """A running value that begins at a word, with its step in the next word."""
    return Step(Left.ROOT, Right.WORD_IF_MOVED, result, cell, word, Pick.STEP, loop)


def _nested(cell: str, word: str, loop: str, result: Result = Result.NONE) -> Step:
    """A running value on top of the one before."""
    return Step(Left.NESTED, Right.WORD_IF_ADVANCED, result, cell, word, loop=loop)


PROGRAM: tuple[Step, ...] = (
    *(_count(loop) for loop in LOOPS),
    # Rows under the tile: what lies before the tensor is skipped, what lies behind is left out.
    _root("row", "row_start", "h", Result.ROW),
    Step(
        Left.ZERO, Right.MINUS_RESULT_IF_BELOW, Result.SKIP_ROWS,
        word="rows", pick=Pick.LAST, loop="h", capture=Capture.ROWS,
    ),
    _root("column", "column_start", "w", Result.COLUMN),
    Step(
        Left.ZERO, Right.MINUS_RESULT_IF_BELOW, Result.SKIP_COLUMNS,
        word="column_groups", pick=Pick.LAST, loop="w", capture=Capture.COLUMN_GROUPS,
    ),
    Step(Left.CELL, Right.WORD, cell="row", word="span_h", pick=Pick.LAST, loop="h"),
    Step(Left.RESULT, Right.MINUS_WORD, word="in_height"),
    Step(
        Left.CELL_IF_ROW_BEFORE, Right.MINUS_RESULT_IF_ABOVE, cell="row",
        word="tile_m", pick=Pick.LAST, loop="m", capture=Capture.CHANNELS,
    ),
    Step(Left.RESULT, Right.WORD, Result.ROWS, word="span_h", pick=Pick.LAST, loop="h"),
    _root("in_w", "in_w_start", "w"),
    # Columns likewise.
    Step(Left.CELL, Right.WORD, cell="column", word="span_w", pick=Pick.LAST, loop="w"),
    Step(Left.RESULT, Right.MINUS_WORD, Result.COLUMN_OVER, word="in_width"),
    Step(
        Left.CELL_IF_COLUMN_BEFORE, Right.MINUS_RESULT_IF_ABOVE, cell="column",
        word="m_tail", pick=Pick.LAST, loop="m", capture=Capture.CHANNEL_TAIL,
    ),
    Step(
        Left.RESULT, Right.WORD, Result.COLUMNS,
        word="span_w", pick=Pick.LAST, loop="w", capture=Capture.COLUMN_TAIL,
    ),
    # The first input inside the tensor.
    _root("in_g", "input_address", "g"),
    _nested("in_m", "in_m_step", "m"),
    _nested("in_c", "in_c_step", "c"),
    _root("in_h", "in_h_start", "h"),
    Step(
        Left.CELL_UNLESS_COLUMN_BEFORE, Right.RESULT_UNLESS_ROW_BEFORE, cell="in_w",
        word="c_steps", pick=Pick.LAST, loop="c", capture=Capture.STEPS,
    ),
    Step(
        Left.CELL, Right.RESULT, Result.INPUT_ADDRESS, cell="in_c",
        word="pixel_words", pick=Pick.PIXEL, capture=Capture.PIXEL,
    ),
    # Bytes of a run: those of the columns, cut as they are, or of a pixel.
    Step(Left.CELL, Right.WORD, cell="in_w", word="segment_bytes", pick=Pick.RUN),
    Step(Left.RESULT, Right.MINUS_WORD, word="in_row_pitch"),
    Step(
        Left.CELL_IF_RUN_BEFORE, Right.MINUS_RESULT_IF_RUN_OVER, cell="in_w",
        word="weight_bytes", pick=Pick.WEIGHTS, capture=Capture.WEIGHT_LENGTH,
    ),
    Step(Left.RESULT, Right.WORD, Result.INPUT_LENGTH, word="segment_bytes", pick=Pick.RUN),
    _root("weight_g", "weight_address", "g"),
    _nested("weight_m", "weight_m_step", "m"),
    Step(
        Left.NESTED, Right.WORD_IF_ADVANCED, Result.WEIGHT_ADDRESS, cell="weight_c",
        word="weight_bytes", pick=Pick.LAST_M, loop="c",
    ),
    _root("bias_g", "bias_address", "g"),
    _nested("bias_m", "bias_m_step", "m", Result.BIAS_ADDRESS),
    _root("scale_g", "scale_address", "g"),
    _nested("scale_m", "scale_m_step", "m", Result.SCALE_ADDRESS),
    _root("out_g", "output_address", "g"),
    _nested("out_m", "out_m_step", "m"),
    # Rows and columns of outputs: m may be the loop outside or inside of both.
    Step(Left.ROOT, Right.WORD_IF_ADVANCED, cell="out_h", word="out_h_step", loop="h"),
    _nested("out_w", "out_w_step", "w"),
    Step(Left.CELL, Right.RESULT, Result.OUTPUT_ADDRESS, cell="out_m"),
    _root("low_q", "low_q", "w", Result.LOW_Q),
    Step(Left.RESULT, Right.WORD, Result.HIGH_Q, word="q_width"),
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A row of the program memory: what steps one cycle apart do in the same cycle."""

    cell: int = 0
    word: int = 0
    pick: int = 0
    loop: int = 0
    left: int = 0
    right: int = 0
    capture: int = 0
    result: int = 0

    WIDTHS = {  # noqa: RUF012 - a table, not a field
        "cell": 5, "word": 7, "pick": 3, "loop": 3,
        "left": 4, "right": 4, "capture": 4, "result": 4,
    }  # fmt: skip


def rows() -> list[Row]:
    """Return the rows of the program memory, without the idle row in front.

    A row has what one step reads, what the step before loads, and where the sum of the step before
    that one goes.
    """
    _check(PROGRAM)
    found: list[Row] = []
    for cycle in range(len(PROGRAM) + 2):
        values: dict[str, int] = {}
        if cycle < len(PROGRAM):
            step = PROGRAM[cycle]
            values |= {
                "cell": 0 if step.cell is None else CELLS.index(step.cell),
                "word": 0 if step.word is None else _WORDS[step.word],
                "pick": step.pick,
                "loop": LOOPS.index(step.loop),
            }
        if 1 <= cycle <= len(PROGRAM):
            step = PROGRAM[cycle - 1]
            values |= {"left": step.left, "right": step.right, "capture": step.capture}
        if cycle >= 2:
            values["result"] = PROGRAM[cycle - 2].result
        found.append(Row(**values))
    return found


def _check(program: tuple[Step, ...]) -> None:
    """A sum is stored three cycles after its cell was read; nothing may read it earlier."""
    written: dict[str, int] = {}
    for cycle, step in enumerate(program):
        if step.cell is None:
            continue
        if cycle - written.get(step.cell, -3) < 3:
            raise ValueError(f"Cell {step.cell} must not be read before it is written")
        if step.left in (Left.ROOT, Left.NESTED):
            written[step.cell] = cycle
