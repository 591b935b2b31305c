"""The boards by name."""

from haloconv.flow.boards.arty_a7 import ARTY_A7_35, ARTY_A7_100
from haloconv.flow.boards.board import Board
from haloconv.flow.boards.icebreaker import BOARD as ICEBREAKER
from haloconv.flow.boards.ulx3s_85f import BOARD as ULX3S_85F

__all__ = ["BOARDS", "board_named"]

BOARDS = {board.name: board for board in (ULX3S_85F, ICEBREAKER, ARTY_A7_35, ARTY_A7_100)}
"""Boards by name."""


def board_named(name: str) -> Board:
    """Return a board by its name.

    Raises
    ------
    ValueError
        If it is not known.
    """
    if name not in BOARDS:
        raise ValueError(f"Board must be one of {', '.join(BOARDS)}, not {name!r}")
    return BOARDS[name]
