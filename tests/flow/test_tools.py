"""Running tools of the FPGA flow."""

import re
import sys
from pathlib import Path

import pytest

from haloconv.flow import tools
from haloconv.flow.tools import ToolError, find_tool, processors, run_tool


def test_output() -> None:
    code = "import sys; print(input()); print('second', file=sys.stderr)"
    output = run_tool("Python", [sys.executable, "-c", code], stdin="first\n")
    assert sorted(output.split()) == ["first", "second"]


def test_failure_shows_the_end_of_the_log() -> None:
    code = "print(*range(100), sep='\\n'); raise SystemExit(3)"
    with pytest.raises(
        ToolError, match=r"^Python failed with code 3; its log ends: 95\n96\n97\n98\n99$"
    ):
        run_tool("Python", [sys.executable, "-c", code])


def test_failure_shows_errors_first() -> None:
    code = "print('ERROR: no room'); print(*range(100), sep='\\n'); raise SystemExit(1)"
    with pytest.raises(ToolError, match=r"its log ends: ERROR: no room$"):
        run_tool("Python", [sys.executable, "-c", code])


def test_signal() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    with pytest.raises(ToolError, match=re.escape("Python was ended by signal 9")):
        run_tool("Python", [sys.executable, "-c", code])


def test_missing_tool() -> None:
    with pytest.raises(ToolError, match=re.escape("run pip install some-package")):
        find_tool("no-such-tool-at-all", package="some-package")
    with pytest.raises(ToolError, match="Nothing could not be started"):
        run_tool("Nothing", ["/no/such/tool"])


@pytest.mark.parametrize(
    ("quota", "count"),
    [("max 100000", 8), ("250000 100000", 3), ("50000 100000", 1), ("9900000 100000", 8)],
)
def test_processors_are_those_of_the_container(
    quota: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(quota + "\n")
    monkeypatch.setattr(tools.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(tools, "QUOTA", file)
    assert processors() == count
