"""An engine in Amaranth's simulator that runs one program after the other.

``haloconv.sim.backend.run`` resets and elaborates the engine for each program. Here it keeps its
state between programs, so that a test can look at what an error or an abort leaves behind, and
many short programs cost one elaboration.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from amaranth.hdl import ClockDomain, Module
from amaranth.sim import Simulator

from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.program import LayerProgram, build_layer_program, read_outputs
from haloconv.planner.registers import COUNTERS, Register
from haloconv.planner.requantization import Requantization
from haloconv.planner.tile import Tile
from haloconv.rtl.engine import Engine
from haloconv.sim.memory import MemoryModel

__all__ = ["EngineBench", "Outcome", "Script"]

Script = Generator[tuple[int, int, int], int, Any]
"""Yields (address, write, write_data) of a cycle, is sent the read_data of the same cycle."""

START, ABORT = 1, 2
BUSY, DONE, ERROR = 1, 2, 4


@dataclass(frozen=True)
class Outcome:
    """Registers, counters and memory after a run; ``cycles`` from start until it was seen."""

    status: int
    error_code: int
    error_detail: int
    layers: int
    counters: dict[str, int]
    memory: np.ndarray
    model: MemoryModel
    cycles: int

    @property
    def done(self) -> bool:
        return self.status & (BUSY | DONE | ERROR) == DONE


class EngineBench:
    """One engine, its clock, and a host that plays scripts of register accesses.

    Parameters
    ----------
    config : EngineConfig
    quiet : int
        Cycles after each script in which the engine has to leave its ports alone.
    """

    def __init__(self, config: EngineConfig, *, quiet: int = 0) -> None:
        self.config = config
        self._quiet = quiet
        self._script: Script | None = None
        self._model: MemoryModel | None = None
        self._result: Any = None
        dut = Engine(config)
        top = Module()
        top.domains.sync = ClockDomain("sync")
        top.submodules.dut = dut
        memory, registers = dut.memory, dut.registers
        request, data, write = memory.read_request, memory.read_data, memory.write
        sampled = (
            request.valid, request.payload.address, request.payload.beats, data.ready,
            write.valid, write.payload.address, write.payload.data, write.payload.strobe,
            registers.read_data,
        )  # fmt: skip
        driven = (
            request.ready, data.valid, data.payload.data, data.payload.error, write.ready,
            memory.write_error, registers.address, registers.write, registers.write_data,
        )  # fmt: skip

        async def process(ctx: Any) -> None:
            levels = [0] * len(driven)
            ticks = ctx.tick().sample(*sampled).__aiter__()
            while True:
                while self._script is None or self._model is None:
                    await ticks.__anext__()
                script, model = self._script, self._model
                access = next(script)
                left = self._quiet
                while True:
                    new = (
                        model.request_ready, model.data_valid, model.data, model.data_error,
                        model.write_ready, model.write_error, *access,
                    )  # fmt: skip
                    for index, level in enumerate(new):
                        if levels[index] != level:
                            levels[index] = level
                            ctx.set(driven[index], int(level))
                    _, _, *values, read_data = await ticks.__anext__()
                    model.step(*values)
                    if self._script is None:
                        # The script is over; what follows may not touch memory.
                        assert not values[0] and not values[4], "a request after the end"
                        left -= 1
                        if left <= 0:
                            break
                        continue
                    try:
                        access = script.send(read_data)
                    except StopIteration as end:
                        self._result = end.value
                        self._script = None
                        access = (Register.STATUS, 0, 0)
                        if left <= 0:
                            break
                assert model.beats_owed == 0, "beats nobody took"
                self._model = None

        self._simulator = Simulator(top)
        self._simulator.add_clock(1e-8)
        self._simulator.add_process(process)

    def play(self, script: Script, model: MemoryModel) -> Any:
        """Play a script of register accesses against a memory; return what it returns."""
        self._script, self._model = script, model
        while self._model is not None:
            self._simulator.advance()
        return self._result

    def memory_model(self, image: Any, **options: Any) -> MemoryModel:
        return MemoryModel(
            image, address_bits=self.config.address_bits, bus_bytes=self.config.bus_bytes,
            **options,
        )  # fmt: skip

    def run(
        self,
        image: Any,
        program_address: int,
        *,
        abort_at: int | None = None,
        max_cycles: int = 20_000,
        **memory: Any,
    ) -> Outcome:
        """Start a program and poll until it has stopped.

        ``abort_at`` counts cycles from the one in which start is written (at least 1).
        """
        model = self.memory_model(image, **memory)

        def script() -> Script:
            yield Register.PROGRAM_LOW, 1, program_address
            yield Register.PROGRAM_HIGH, 1, 0
            yield Register.CONTROL, 1, START
            cycle, polled = 1, False
            while True:
                if cycle == abort_at:
                    read_data = yield Register.CONTROL, 1, ABORT
                else:
                    read_data = yield Register.STATUS, 0, 0
                if polled and not read_data & BUSY:
                    break
                polled = cycle != abort_at
                cycle += 1
                assert cycle < max_cycles, f"still busy after {cycle} cycles"
            words = yield from self.read_all()
            return cycle, words

        cycles, words = self.play(script(), model)
        counters = {
            name: words[register] | words[register + 1] << 32 for name, register in COUNTERS.items()
        }
        return Outcome(
            status=words[Register.STATUS],
            error_code=words[Register.ERROR_CODE],
            error_detail=words[Register.ERROR_DETAIL],
            layers=words[Register.LAYERS],
            counters=counters,
            memory=model.memory,
            model=model,
            cycles=cycles,
        )

    @staticmethod
    def read_all(count: int = 40) -> Script:
        """Read the first ``count`` registers; each word arrives a cycle after its address."""
        words = []
        for address in range(count):
            words.append((yield address, 0, 0))
        words.append((yield Register.STATUS, 0, 0))
        return words[1:]

    def run_layer(
        self,
        layer: ConvLayer,
        tile: Tile,
        mode: str,
        order: str,
        inputs: np.ndarray,
        weights: np.ndarray,
        bias: np.ndarray | None,
        *,
        requantization: Requantization | None = None,
        weight_zero_points: np.ndarray | None = None,
        **options: Any,
    ) -> tuple[np.ndarray, Outcome, LayerProgram]:
        """Run one layer; return its outputs (N, OH, OW, M), what the run left, and the program."""
        program = build_layer_program(
            layer, self.config, tile, mode, order, inputs=inputs, weights=weights, bias=bias,
            requantization=requantization, weight_zero_points=weight_zero_points,
        )  # fmt: skip
        outcome = self.run(program.image, program.program_address, **options)
        outputs = read_outputs(program, outcome.memory, layer, requantization is None)
        return outputs, outcome, program
