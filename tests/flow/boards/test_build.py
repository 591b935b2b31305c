# amaranth: UnusedElaboratable=no
"""Designs fit their board's memory, and what does not is refused before any tool runs."""

import hashlib
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloconv.flow.boards import BOARDS
from haloconv.flow.boards.build import (
    build_board,
    design_board,
    engine_defaults,
    memory_for,
)
from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import PlanError
from haloconv.planner.network_file import read_network
from haloconv.planner.network_program import EngineRun

ROOT = Path(__file__).parents[3]
spec = importlib.util.spec_from_file_location(
    "small_network", ROOT / "tests" / "support" / "small_network.py"
)
assert spec is not None and spec.loader is not None
small: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(small)


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = tmp_path / "chain.tflite"
    path.write_bytes(small.chain())
    return path


def config_of(path: Path, **options: Any) -> EngineConfig:
    return EngineConfig.for_network(path, 1200, 2, 2, bus_bytes=2, **options)


def test_memory_is_whole_banks() -> None:
    ulx3s, icebreaker = BOARDS["ulx3s_85f"], BOARDS["icebreaker"]
    # ResNet-8 and person detection, in banks of 2048 words of 8 bytes.
    assert memory_for(ulx3s, 145152, 8) == 9 * 16384
    assert memory_for(ulx3s, 301440, 8) == 19 * 16384
    assert memory_for(ulx3s, 4096, 2) == 4096
    assert memory_for(ulx3s, 4097, 2) == 8192
    # One RAM of 16384 words of two bytes, or four side by side.
    assert memory_for(icebreaker, 100, 2) == 32768
    assert memory_for(icebreaker, 32769, 2) == 65536
    assert memory_for(icebreaker, 100, 8) == 131072
    with pytest.raises(PlanError, match=r"needs 145152 bytes of memory, but .* has 131072 on chip"):
        memory_for(icebreaker, 145152, 2)
    with pytest.raises(PlanError, match="choose a smaller network or another board"):
        memory_for(BOARDS["arty_a7_35"], 301440, 8)
    # It fits, but for what a wide port leaves unused of the last bank.
    with pytest.raises(
        PlanError,
        match=r"needs 140000 bytes of memory, which are 196608 in banks for ports of 32 bytes, but "
        r".* has 188416 on chip; choose a narrower --bus",
    ):
        memory_for(BOARDS["arty_a7_35"], 140000, 32)


@pytest.mark.parametrize("bus", [1, 16])
def test_ports_that_the_memory_cannot_have_are_refused(chain: Path, bus: int) -> None:
    config = replace(config_of(chain), bus_bytes=bus)
    message = f"must be 2, 4 or 8 bytes wide, not {bus}; choose --bus 2, 4 or 8"
    with pytest.raises(ValueError, match=message):
        design_board(BOARDS["icebreaker"], read_network(chain), config)
    assert design_board(BOARDS["ulx3s_85f"], read_network(chain), config).memory_bytes >= 2048


def test_defaults_suit_board_and_network(chain: Path, tmp_path: Path) -> None:
    icebreaker = BOARDS["icebreaker"]
    values = engine_defaults(icebreaker, read_network(chain))
    assert values["lanes"] == (4, 2) and values["serial_requantizers"]
    # Sums need multipliers in their requantisers.
    (tmp_path / "residual.tflite").write_bytes(small.residual())
    values = engine_defaults(icebreaker, read_network(tmp_path / "residual.tflite"))
    assert values["lanes"] == (4, 2) and "serial_requantizers" not in values
    assert "serial_requantizers" not in engine_defaults(BOARDS["ulx3s_85f"], read_network(chain))


def test_design(chain: Path) -> None:
    network = read_network(chain)
    design = design_board(BOARDS["ulx3s_85f"], network, config_of(chain))
    assert design.program.config.address_bits == 16
    assert (design.memory_bytes, design.clock_hz, design.cycles) == (4096, 50e6, 50)
    manifest = design.manifest(model=chain, bitstream="b.bit")
    found = (manifest.board, manifest.model, manifest.bitstream)
    assert found == ("ulx3s_85f", chain.name, "b.bit")
    assert manifest.model_sha256 == hashlib.sha256(chain.read_bytes()).hexdigest()
    kinds = [step.program_address is None for step in manifest.steps]
    assert kinds == [not isinstance(step, EngineRun) for step in design.program.steps]
    assert kinds == [False, True, False]
    assert network.nodes[manifest.steps[1].node or 0].operator == "LOGISTIC"
    other = design_board(BOARDS["icebreaker"], network, config_of(chain))
    assert (other.program.config.address_bits, other.memory_bytes) == (16, 32768)


def test_clock_and_rate(chain: Path) -> None:
    network, config = read_network(chain), config_of(chain)
    board = BOARDS["ulx3s_85f"]
    design = design_board(board, network, config, clock_hz=62.5e6, baud=2_500_000)
    assert (design.clock_hz, design.baud, design.cycles) == (62.5e6, 2_500_000, 25)
    with pytest.raises(ValueError, match="Baud rate must be within 2%"):
        design_board(board, network, config, baud=9_000_000)
    with pytest.raises(ValueError, match="Clock must be one that the PLL makes from 25 MHz"):
        design_board(board, network, config, clock_hz=1e6)


def test_a_network_without_work_is_refused(chain: Path) -> None:
    network, config = read_network(chain), config_of(chain)
    only_host = replace(network, nodes=[network.nodes[1]], inputs=network.nodes[1].inputs)
    with pytest.raises(PlanError, match="no operator that the engine runs; there is nothing"):
        design_board(BOARDS["ulx3s_85f"], only_host, config)


def test_files_of_a_board_without_place_and_route(chain: Path, tmp_path: Path) -> None:
    design = design_board(BOARDS["arty_a7_35"], read_network(chain), config_of(chain))
    steps: list[str] = []
    folder = tmp_path / "out"
    built = build_board(design, chain, folder, progress=steps.append)
    assert steps == ["elaborating the design"]
    assert set(built.files) == {path.name for path in folder.iterdir()}
    assert set(built.files) == {
        "image.bin", "manifest.json", "model.tflite", "report.json", "top.tcl", "top.v", "top.xdc",
    }  # fmt: skip
    image = np.frombuffer((folder / "image.bin").read_bytes(), np.uint8)
    assert np.array_equal(image, design.program.image)
    assert "fmax_mhz" not in built.report
    verilog = (folder / "top.v").read_text()
    assert "PLLE2_BASE" in verilog and str(ROOT) not in verilog
