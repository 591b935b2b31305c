"""An engine on a board of its own: on-chip memory and a serial link to the host."""

from haloconv.rtl.board.system import BoardSystem

__all__ = ["BoardSystem"]
