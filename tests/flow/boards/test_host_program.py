# amaranth: UnusedElaboratable=no
"""The host program on simulated boards, over the serial line, against the golden model."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloconv.flow.boards import BOARDS
from haloconv.flow.boards.build import BoardDesign, design_board
from haloconv.flow.boards.host_program import BoardHost, BoardProgram, read_program
from haloconv.flow.boards.link import Link, LinkError
from haloconv.flow.boards.manifest import IMAGE, MANIFEST
from haloconv.flow.network_inputs import seeded_inputs
from haloconv.planner.config import EngineConfig
from haloconv.planner.network_file import read_network
from haloconv.planner.registers import (
    COUNTERS,
    COUNTERS_BUILT,
    IDENTITY,
    REVISION,
    Register,
)
from haloconv.rtl.board.on_chip_memory import read_latency
from haloconv.sim.backends import cxxrtl
from haloconv.sim.board.compiled import CompiledBoard, compile_board
from haloconv.sim.board.simulated import SimulatedBoard
from haloconv.sim.layer import EngineFault
from haloconv.sim.network_golden import golden_network

ROOT = Path(__file__).parents[3]


def load(name: str) -> Any:
    """Import a file of tests/support."""
    path = ROOT / "tests" / "support" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


small, fake = load("small_network"), load("fake_board")
compiled = pytest.mark.skipif(cxxrtl.unavailable() is not None, reason="no compiled simulator")
BIT = 4


def made(folder: Path, name: str, board: str, lanes=(1, 2), **options) -> BoardDesign:
    """Return a small network's design, and leave its model and files in the folder."""
    (folder / "model.tflite").write_bytes(getattr(small, name)())
    network = read_network(folder / "model.tflite")
    chosen = BOARDS[board]
    config = EngineConfig.for_network(
        network,
        1200,
        *lanes,
        bus_bytes=options.pop("bus_bytes", 2),
        latency=read_latency(chosen.technology),
        **options,
    )
    design = design_board(chosen, network, config, baud=round(chosen.clock_hz / BIT))
    manifest = design.manifest(model=folder / "model.tflite", bitstream="")
    (folder / MANIFEST).write_text(manifest.to_text())
    (folder / IMAGE).write_bytes(design.program.image.tobytes())
    return design


def check(board: Any, program: BoardProgram, *, runs: int = 1) -> tuple[BoardHost, Link]:
    """Load and run a network, with the outputs and cycles that the models promise."""
    seed = 7
    print(f"seed {seed}")
    link = Link(board)
    host = BoardHost(link, program)
    host.load()
    network = program.network
    for run in range(runs):
        inputs = seeded_inputs(network, seed + run)
        result = host.run(inputs)
        expected = golden_network(network, inputs)
        for index, found in zip(network.outputs, result.outputs, strict=True):
            np.testing.assert_array_equal(found, expected[index])
        # The planner knows the memory's latency, but takes reads and writes to have ports of their
        # own, and nothing of the host's accesses.
        predicted = program.manifest.predicted_cycles
        assert predicted <= result.counters["cycles"] <= 1.05 * predicted
        assert result.engine_seconds == result.counters["cycles"] / program.manifest.clock_hz
    return host, link


@pytest.mark.slow
def test_in_amaranths_simulator(tmp_path: Path) -> None:
    """Two runs of the engine with an operator of the host between them; gaps on the line."""
    design = made(tmp_path, "chain", "ulx3s_85f")
    board = SimulatedBoard(
        design.system(), bit_cycles=BIT, clock_hz=design.clock_hz, gaps=9, seed=5
    )
    _, link = check(board, read_program(tmp_path))
    assert link.repeats == 0


@compiled
@pytest.mark.slow
@pytest.mark.parametrize(
    "name, board, lanes, bus",
    [
        ("chain", "ulx3s_85f", (1, 2), 2),
        ("residual", "icebreaker", (2, 2), 2),
        ("residual", "arty_a7_35", (3, 1), 8),
    ],
)
def test_compiled(tmp_path: Path, name, board, lanes, bus) -> None:
    design = made(tmp_path, name, board, lanes, bus_bytes=bus)
    device = CompiledBoard(
        compile_board(design.system()), bit_cycles=BIT, clock_hz=design.clock_hz, gaps=5
    )
    _, link = check(device, read_program(tmp_path), runs=2)
    assert link.repeats == 0
    device.close()


class NoisyLine:
    """A transport that damages what passes, in both directions."""

    def __init__(self, board: Any, seed: int, share: float) -> None:
        self.board = board
        self.there, self.back = fake.Noise(seed, share), fake.Noise(seed + 1, share)

    def write(self, data: bytes) -> None:
        self.board.write(self.there(data))

    def read(self, count: int) -> bytes:
        return self.back(self.board.read(count))[:count]

    def drain(self) -> None:
        self.board.drain()

    def seconds(self) -> float:
        return self.board.seconds()

    def close(self) -> None:
        self.board.close()


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> tuple[BoardDesign, Path]:
    folder = tmp_path_factory.mktemp("chain")
    return made(folder, "chain", "ulx3s_85f"), folder


def device(design: BoardDesign) -> CompiledBoard:
    return CompiledBoard(compile_board(design.system()), bit_cycles=BIT, clock_hz=design.clock_hz)


@compiled
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_on_a_bad_line(chain, seed) -> None:
    """One byte in 500 is changed, lost or doubled: everything is repeated until it is right."""
    print(f"seed {seed}")
    design, folder = chain
    noisy = NoisyLine(device(design), seed, 1 / 500)
    _, link = check(noisy, read_program(folder))
    assert link.repeats > 0 and noisy.there.done + noisy.back.done > 0
    noisy.close()


@compiled
def test_a_fault_of_the_engine_is_told(chain) -> None:
    design, folder = chain
    program = read_program(folder)
    board = device(design)
    host, link = check(board, program)
    first = program.manifest.steps[0].program_address
    assert first is not None
    link.write_memory(first, b"\0\0")  # the descriptor's mark
    inputs = seeded_inputs(program.network, 1)
    with pytest.raises(EngineFault, match="error DESCRIPTOR in descriptor 0"):
        host.run(inputs)
    host.load()
    assert host.run(inputs).counters["cycles"] > 0
    board.close()


@compiled
def test_another_engine_is_refused(chain, tmp_path: Path) -> None:
    design, _ = chain
    made(tmp_path, "chain", "ulx3s_85f", (2, 2))
    board = device(design)
    with pytest.raises(LinkError, match=r"another engine than this build's: 1x2 lanes.* of 2x2"):
        BoardHost(Link(board), read_program(tmp_path))
    board.close()


def test_no_engine_is_told(chain) -> None:
    _, folder = chain
    with pytest.raises(LinkError, match="no engine answers: its identity is 0x00000000"):
        BoardHost(Link(fake.FakeBoard()), read_program(folder))


class StubEngine(fake.FakeBoard):
    """A board whose engine takes its time, or for ever; it computes nothing."""

    def __init__(
        self, program: BoardProgram, *, polls: int, lost_starts: int = 0, counters: bool = True
    ) -> None:
        config = program.manifest.config
        super().__init__(size=program.manifest.memory_bytes)
        self.registers[:8] = [
            IDENTITY,
            REVISION,
            config.out_lanes | config.split_lanes << 8 | config.bus_bytes << 16,
            config.address_bits << 16 | (COUNTERS_BUILT if counters else 0),
            config.input_words,
            config.weight_words,
            config.psum_words,
            config.channel_groups,
        ]
        self.polls, self.left, self.lost_starts = polls, 0, lost_starts
        self.starts = self.aborts = 0
        self.damage_answers = self.lose

    def lose(self, answer):
        if self.lost_starts and self.starts > 2 - self.lost_starts:
            self.lost_starts -= 1
            return b""
        return answer

    def write_register(self, index, value):
        if index == Register.CONTROL and value == 1:
            self.starts += 1
            self.left = self.polls
        if index == Register.CONTROL and value == 2:
            self.aborts += 1

    def answer(self, status, data=b""):
        self.left = max(0, self.left - 1)
        self.registers[Register.STATUS] = 1 if self.left else 2
        super().answer(status, data)


def test_a_board_that_hangs_is_stopped(chain) -> None:
    _, folder = chain
    program = read_program(folder)
    board = StubEngine(program, polls=1 << 60)
    host = BoardHost(Link(board), program)
    with pytest.raises(LinkError, match=r"still busy after 1\.0 s, 0 descriptors on; it was told"):
        host.run(seeded_inputs(program.network, 1))
    assert board.aborts == 1


def test_a_lost_start_begins_the_network_anew(chain) -> None:
    """The engine may have run and overwritten its inputs, so they are written again."""
    _, folder = chain
    program = read_program(folder)
    board = StubEngine(program, polls=3, lost_starts=1)
    BoardHost(Link(board), program).run(seeded_inputs(program.network, 1))
    engine_runs = sum(step.program_address is not None for step in program.manifest.steps)
    assert engine_runs == 2
    assert board.starts > engine_runs


@pytest.mark.parametrize("counters", [True, False])
def test_counters_are_those_that_the_board_says_are_built(chain, counters: bool) -> None:
    """Zeros of counters that are not built are no counts."""
    _, folder = chain
    program = read_program(folder)
    board = StubEngine(program, polls=1, counters=counters)
    board.registers[Register.CYCLES : Register.CYCLES + 2] = [7, 1]
    result = BoardHost(Link(board), program).run(seeded_inputs(program.network, 1))
    runs = sum(step.program_address is not None for step in program.manifest.steps)
    assert result.counters["cycles"] == runs * (1 << 32 | 7)
    others = dict.fromkeys(set(COUNTERS) - {"cycles"}, 0) if counters else {}
    assert result.counters == {"cycles": result.counters["cycles"]} | others


def test_inputs_are_checked(chain) -> None:
    _, folder = chain
    program = read_program(folder)
    host = BoardHost(Link(StubEngine(program, polls=1)), program)
    with pytest.raises(ValueError, match="inputs must be 1 arrays, not 0"):
        host.run([])


def test_folders_are_checked(chain, tmp_path: Path) -> None:
    _, folder = chain
    with pytest.raises(ValueError, match=r"has no manifest\.json; make it with haloconv build"):
        read_program(tmp_path)
    for name in (MANIFEST, IMAGE, "model.tflite"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    image = bytearray((tmp_path / IMAGE).read_bytes())
    image[5] ^= 1
    (tmp_path / IMAGE).write_bytes(image)
    with pytest.raises(ValueError, match=r"image\.bin is not the image of the manifest"):
        read_program(tmp_path)
    (tmp_path / IMAGE).write_bytes((folder / IMAGE).read_bytes())
    (tmp_path / "model.tflite").write_bytes(small.chain(seed=9))
    with pytest.raises(ValueError, match=r"model\.tflite is not the model of the manifest"):
        read_program(tmp_path)
    (tmp_path / "model.tflite").unlink()
    with pytest.raises(ValueError, match=r"model\.tflite: No such file .*; build it anew"):
        read_program(tmp_path)
    values = json.loads((folder / MANIFEST).read_text())
    for name, value in (("baud", 0), ("clock_hz", 0), ("clock_hz", float("nan"))):
        (tmp_path / MANIFEST).write_text(json.dumps(values | {name: value}))
        with pytest.raises(ValueError, match=rf"no manifest of a board: {name} .*; build it anew"):
            read_program(tmp_path)
    (tmp_path / MANIFEST).write_text("{}")
    with pytest.raises(ValueError, match=r"is no manifest of a board: it has no 'board'; build"):
        read_program(tmp_path)


def test_manifests_survive_their_file(chain) -> None:
    design, folder = chain
    manifest = design.manifest(model=folder / "model.tflite", bitstream="")
    program = read_program(folder)
    assert program.manifest == manifest
    assert replace(manifest, bitstream="x").to_text() != manifest.to_text()
    # What has to be loaded is all but the tensors.
    ((start, end),) = manifest.load
    assert start == 0 and end == min(manifest.addresses.values())
    assert manifest.predicted_cycles == design.program.cycles
