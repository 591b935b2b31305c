"""What a synthesis process runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from haloconv.flow.synthesis.area import FAMILIES, family_of
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


def in_order(commands: list[str], *wanted: str) -> None:
    """Each command stands there once, in this order."""
    assert [commands.count(command) for command in wanted] == [1] * len(wanted)
    places = [commands.index(command) for command in wanted]
    assert places == sorted(places), commands


def test_the_ice40s_multipliers_are_hidden_from_its_flow() -> None:
    """Under another name of the same ports from before the flow until after it."""
    commands = passes("ice40", "chip")
    (flow,) = (command for command in commands if command.startswith("synth_ice40 "))
    in_order(
        commands,
        "read_rtlil design.il",
        "read_verilog -lib +/ice40/cells_sim.v",
        "copy SB_MAC16 haloconv_SB_MAC16",
        "chtype -set haloconv_SB_MAC16 t:SB_MAC16",
        flow,
        "chtype -set SB_MAC16 t:haloconv_SB_MAC16",
        "delete =*haloconv_SB_MAC16",
        "autoname",
        "write_json netlist.json",
    )
    # What ABC is to do is set before it runs.
    (script,) = (command for command in commands if command.startswith("scratchpad "))
    in_order(commands, script, flow)
    assert script == f'scratchpad -set abc9.script "{family_of("ice40").script}"'


def test_the_ecp5s_step_of_luts_is_replaced() -> None:
    """Its flow runs up to that step and from the next one on."""
    commands = passes("ecp5", "chip")
    whole = "synth_lattice -family ecp5 -top chip"
    first, second = f"{whole} -run begin:map_luts", f"{whole} -run map_cells:"
    in_order(commands, first, second)
    between = commands[commands.index(first) + 1 : commands.index(second)]
    assert between == list(family_of("ecp5").luts)
    assert [command for command in between if command.startswith("abc9")] == ["abc9 -W 900 -D 6500"]
    assert not any(command.startswith("chtype") for command in commands)


def test_yosys_has_that_step_just_before_the_next_one() -> None:
    """What is replaced is abc9 with another bound, and a step for latches, of which there are none:
    the first command refuses them."""
    pytest.importorskip("pyosys")
    program = (
        "from haloconv.flow.synthesis.worker import run_yosys\n"
        "run_yosys('pyosys', ['help synth_lattice'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300
    )
    _, _, rest = done.stdout.partition("    map_luts:\n")
    step, _, _ = rest.partition("    map_cells:\n")
    lines = [line.partition("    (")[0].strip() for line in step.splitlines() if line.strip()]
    assert lines == [
        "check -latchonly -assert",
        "techmap -map +/lattice/latches_map.v",
        "abc9 -W 300",
        "clean",
    ]


def test_the_job_is_a_file(tmp_path: Path) -> None:
    """Without one the process fails, and says what is missing."""
    done = subprocess.run(
        [sys.executable, "-m", "haloconv.flow.synthesis.worker"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "job.json" in done.stderr
