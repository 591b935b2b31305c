"""Command-line tools of the FPGA flow: found, run in a process of their own, errors in one line."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["ToolError", "find_tool", "processors", "run_tool"]

LOG_LINES = 5
"""Last lines of a failed tool's log that its error shows."""


QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Where Linux says which share of the processors a container may use."""


class ToolError(RuntimeError):
    """A tool of the FPGA flow is missing or failed; says which, and how its log ends."""


def processors() -> int:
    """Return how many processors this process may use, at least 1.

    Those of the machine may be many more, in a container with a share of it.
    """
    count = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    if QUOTA.exists():
        limit, period = QUOTA.read_text(encoding="utf-8").split()
        if limit != "max":
            count = min(count, -(-int(limit) // int(period)))
    return max(count, 1)


def find_tool(name: str, *, package: str) -> str:
    """Return the path of a tool that a Python package brings.

    Parameters
    ----------
    name : str
        Of the console script. The one beside this Python comes first, then PATH.
    package : str
        What to install where it is missing.

    Raises
    ------
    ToolError
        If it is nowhere.
    """
    beside = shutil.which(name, path=str(Path(sys.executable).parent))
    found = beside or shutil.which(name)
    if found is None:
        raise ToolError(f"{name} is not installed; run pip install {package}")
    return found


def run_tool(
    what: str,
    command: Sequence[str],
    *,
    folder: Path | None = None,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a command and return its output, stderr included.

    Parameters
    ----------
    what : str
        Name for errors.
    command : sequence of str
    folder : Path or None
        To run in.
    stdin : str or None
        Text that it is given.
    environment : mapping or None
        Additions to the environment.

    Raises
    ------
    ToolError
        If it cannot be started or fails; with the last lines that it wrote.
    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            input=stdin or "",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise ToolError(f"{what} could not be started: {error}") from error
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        lines = [line for line in lines if line.startswith("ERROR")] or lines
        code = done.returncode
        end = f"was ended by signal {-code}" if code < 0 else f"failed with code {code}"
        tail = "\n".join(lines[-LOG_LINES:])
        raise ToolError(f"{what} {end}; its log ends: {tail}")
    return done.stdout
