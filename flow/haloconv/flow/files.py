"""Writing results to a file or, with ``-``, to stdout."""

import sys
from pathlib import Path

__all__ = ["write_text"]


def write_text(path: Path, text: str) -> None:
    """Write ``text`` with plain line ends, creating the folder; ``-`` is stdout.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    if str(path) == "-":
        sys.stdout.write(text)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
