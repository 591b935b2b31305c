"""What a synthesis process runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from haloconv.flow.synthesis.area import FAMILIES
from haloconv.flow.synthesis.worker import passes


@pytest.mark.parametrize("family", FAMILIES)
def test_passes(family: str) -> None:
    commands = passes(family, "chip")
    assert commands[0] == "read_rtlil design.il"
    flow = [command for command in commands if command.startswith("synth_")]
    assert flow
    assert all(" -top chip" in command for command in flow)
    if len(flow) > 1:  # around the step of LUTs, which is replaced
        first, second = (commands.index(command) for command in flow)
        assert flow[0].endswith(" -run begin:map_luts") and flow[1].endswith(" -run map_cells:")
        assert any(command.startswith("abc9") for command in commands[first:second])
    assert commands[-1] == "write_json netlist.json"


def test_the_job_is_a_file(tmp_path: Path) -> None:
    """Without one the process fails, and says what is missing."""
    done = subprocess.run(
        [sys.executable, "-m", "haloconv.flow.synthesis.worker"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "job.json" in done.stderr
