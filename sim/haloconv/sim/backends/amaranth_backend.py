"""The engine in Amaranth's own simulator: always there, slow, and the only one that writes VCD."""

from collections.abc import Generator
from contextlib import ExitStack
from typing import Any

from amaranth.hdl import ClockDomain, Module
from amaranth.sim import Simulator

from haloconv.planner.registers import Register
from haloconv.sim.backends.job import (
    REGISTER_WORDS,
    RESET_CYCLES,
    Job,
    Outcome,
    PortState,
    SimulationTimeout,
    timeout_message,
)
from haloconv.sim.memory import MemoryModel

__all__ = ["simulate", "unavailable"]

PROGRESS_CYCLES = 256
"""Cycles between two calls of the progress callback."""

_BUSY = 1
_FINISHED = 0b110


class _Host:
    """The host's register accesses, one a cycle.

    Iterate :meth:`accesses`: it yields (address, write, write_data) of a cycle and is sent the
    read_data of the same cycle, which shows the word at the address of the cycle before.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self.status = 0
        self.cycles = 0
        self.words: tuple[int, ...] = ()
        self.finished_at: list[int] = []

    def accesses(self) -> Generator[tuple[int, int, int], int, None]:
        job = self._job
        yield Register.PROGRAM_LOW, 1, job.program_address & 0xFFFFFFFF
        yield Register.PROGRAM_HIGH, 1, job.program_address >> 32
        yield Register.CONTROL, 1, 1
        cycle = 3
        polled = False  # whether the address of the cycle before was STATUS
        while True:
            if cycle == job.abort_at:
                read_data = yield Register.CONTROL, 1, 2
            else:
                read_data = yield Register.STATUS, 0, 0
            if polled:
                if (read_data ^ self.status) >> 16:
                    self.finished_at.append(cycle + 1)
                self.status = read_data
                if not read_data & _BUSY and read_data & _FINISHED:
                    break
            polled = cycle != job.abort_at
            cycle += 1
        self.cycles = cycle + 1
        words: list[int] = []
        for address in range(REGISTER_WORDS):
            read_data = yield address, 0, 0
            words.append(read_data)
        read_data = yield Register.STATUS, 0, 0
        # Each word arrives a cycle after its address.
        self.words = (*words[1:], read_data)


def simulate(dut: Any, job: Job) -> Outcome:
    """Run a job in Amaranth's simulator.

    Raises
    ------
    ProtocolError
        If the device breaks the rules of a memory port.
    SimulationTimeout
        If it is not finished after ``job.max_cycles``.
    """
    model = MemoryModel(
        job.image,
        address_bits=job.address_bits,
        bus_bytes=job.bus_bytes,
        base=job.base,
        latency=job.latency,
        stalls=job.stalls,
        seed=job.seed,
        outstanding=job.outstanding,
        faults=job.faults,
    )
    host = _Host(job)
    finished = False
    memory, registers = dut.memory, dut.registers

    top = Module()
    domain: Any = ClockDomain("sync")
    top.domains.sync = domain
    top.submodules.dut = dut

    request, data, write = memory.read_request, memory.read_data, memory.write
    sampled = (
        request.valid,
        request.payload.address,
        request.payload.beats,
        data.ready,
        write.valid,
        write.payload.address,
        write.payload.data,
        write.payload.strobe,
        registers.read_data,
    )
    driven = (
        request.ready,
        data.valid,
        data.payload.data,
        data.payload.error,
        write.ready,
        memory.write_error,
        registers.address,
        registers.write,
        registers.write_data,
    )

    async def process(ctx: Any) -> None:
        # A process (not a testbench) acts like a register: what it sets appears together with
        # the registers' new values, after one pass of the simulator instead of one for each set.
        nonlocal finished
        ctx.set(domain.rst, 1)
        for _ in range(RESET_CYCLES):
            await ctx.tick()
        ctx.set(domain.rst, 0)
        accesses = host.accesses()
        access = next(accesses)
        levels = [0] * len(driven)
        limit = job.max_cycles
        ticks = ctx.tick().sample(*sampled).__aiter__()
        while True:
            new = (
                model.request_ready,
                model.data_valid,
                model.data,
                model.data_error,
                model.write_ready,
                model.write_error,
                *access,
            )
            for index, level in enumerate(new):
                if levels[index] != level:
                    levels[index] = level
                    ctx.set(driven[index], int(level))
            _, _, *values, read_data = await ticks.__anext__()
            if model.cycle >= limit and not host.cycles:
                raise SimulationTimeout(
                    timeout_message(limit, _port_state(model, values, host.status))
                )
            model.step(*values)
            if job.progress is not None and model.cycle % PROGRESS_CYCLES == 0:
                job.progress(model.cycle)
            try:
                access = accesses.send(read_data)
            except StopIteration:
                break
        finished = True

    simulator = Simulator(top)
    if job.vcd is not None:
        # A path that cannot be written fails before there is a process that would never run.
        job.vcd.open("w").close()
    simulator.add_clock(1e-8)
    simulator.add_process(process)
    with ExitStack() as stack:
        if job.vcd is not None:
            stack.enter_context(simulator.write_vcd(str(job.vcd)))
        while not finished:
            simulator.advance()
    return Outcome(model.memory, host.cycles, host.words, model.traffic, tuple(host.finished_at))


def _port_state(model: MemoryModel, values: list[int], status: int) -> PortState:
    request_valid, address, beats, data_ready, write_valid, write_address, _, _ = values
    return PortState(
        status=status,
        request_valid=request_valid,
        request_ready=model.request_ready,
        request_address=address,
        request_beats=beats,
        data_valid=model.data_valid,
        data_ready=data_ready,
        beats_owed=model.beats_owed,
        write_valid=write_valid,
        write_ready=model.write_ready,
        write_address=write_address,
    )


def unavailable() -> str | None:
    """Return None: Amaranth's simulator comes with Amaranth."""
    return None
