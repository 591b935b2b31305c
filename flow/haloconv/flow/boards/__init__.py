"""Boards: bitstreams with an engine and its memory, and the host program that drives them."""

from haloconv.flow.boards.board import Board
from haloconv.flow.boards.catalogue import BOARDS, board_named

__all__ = ["BOARDS", "Board", "board_named"]
