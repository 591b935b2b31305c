"""Helpers for benches of blocks with stream ports: put, get, random stalls and cycle limits."""

import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from amaranth.hdl import ClockDomain, Module, Signal, Value, ValueCastable
from amaranth.lib import data, wiring
from amaranth.sim import Simulator

from haloconv.planner.validate import check_int
from haloconv.rtl.convert import to_rtlil

__all__ = [
    "BenchTimeout",
    "StreamError",
    "get",
    "get_many",
    "plain",
    "put",
    "put_many",
    "simulate",
]

Bench = Callable[[Any], Coroutine[Any, Any, None]]


class BenchTimeout(AssertionError):
    """A stream or a bench made no progress within its cycle limit."""


class StreamError(AssertionError):
    """A stream lowered valid or changed its payload before the transfer."""


def plain(value: Any) -> Any:
    """Turn a payload into plain Python: dicts and lists of ints, as deep as it goes.

    Takes what a simulator returns (`data.Const`), numpy scalars and arrays, and nested
    mappings and sequences of these.
    """
    if isinstance(value, data.Const):
        shape = value.shape()
        if isinstance(shape, data.StructLayout):
            return {str(name): plain(value[name]) for name, _ in shape}
        if isinstance(shape, data.ArrayLayout):
            return [plain(value[index]) for index in range(shape.length)]
        return value.as_value().value  # unions and flexible layouts: raw bits
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def _check_stalls(stalls: float) -> float:
    if isinstance(stalls, bool) or not isinstance(stalls, (int, float)):
        raise TypeError(f"Stalls must be a share of cycles, not {stalls!r}")
    if not 0 <= stalls < 1:
        raise ValueError(f"Stalls must be at least 0 and below 1, not {stalls!r}")
    return stalls


def _bits(value: Any) -> Value:
    return Value.cast(value.as_value() if isinstance(value, ValueCastable) else value)


async def put_many(
    ctx: Any,
    stream: Any,
    payloads: Iterable[Any],
    *,
    stalls: float = 0.0,
    seed: int = 0,
    limit: int = 1000,
) -> None:
    """Send payloads in order, one a cycle where the stream takes them.

    While it stalls, valid is low and the payload is random, so that a block which looks at the
    payload without valid is found out.

    Parameters
    ----------
    ctx : SimulatorContext
        Of a testbench.
    stream : stream.Interface
        An input of the device under test.
    payloads : iterable
        Ints, or dicts and lists for structures; numpy values are welcome.
    stalls : float
        Share of cycles, from 0 to below 1, in which valid stays low at random.
    seed : int
        Of the random stalls.
    limit : int
        Most cycles that one payload may wait to be taken.

    Raises
    ------
    BenchTimeout
        If a payload is not taken within ``limit`` cycles.
    """
    always_valid = stream.signature.always_valid
    if _check_stalls(stalls) and always_valid:
        raise ValueError(f"Stalls must be 0 on an always-valid stream, not {stalls!r}")
    rng = random.Random(seed)
    bits = _bits(stream.payload)
    for index, payload in enumerate(payloads):
        while stalls and rng.random() < stalls:
            ctx.set(stream.valid, 0)
            ctx.set(bits, rng.getrandbits(len(bits)))
            await ctx.tick()
        ctx.set(stream.payload, plain(payload))
        if not always_valid:
            ctx.set(stream.valid, 1)
        for _ in range(limit):
            _, _, ready = await ctx.tick().sample(stream.ready)
            if ready:
                break
        else:
            raise BenchTimeout(f"Payload {index} was not taken within {limit} cycles")
    if not always_valid:
        ctx.set(stream.valid, 0)


async def get_many(
    ctx: Any,
    stream: Any,
    count: SupportsIndex,
    *,
    stalls: float = 0.0,
    seed: int = 0,
    limit: int = 1000,
) -> list[Any]:
    """Receive ``count`` payloads and check that valid and payload hold until taken.

    Parameters
    ----------
    ctx : SimulatorContext
        Of a testbench.
    stream : stream.Interface
        An output of the device under test.
    count : int
    stalls : float
        Share of cycles, from 0 to below 1, in which ready stays low at random.
    seed : int
        Of the random stalls.
    limit : int
        Most cycles to wait for one payload, stalls not counted.

    Returns
    -------
    list
        Payloads as :func:`plain` gives them.

    Raises
    ------
    BenchTimeout
        If no payload comes within ``limit`` cycles.
    StreamError
        If valid falls or the payload changes before the transfer.
    """
    always_ready = stream.signature.always_ready
    if _check_stalls(stalls) and always_ready:
        raise ValueError(f"Stalls must be 0 on an always-ready stream, not {stalls!r}")
    rng = random.Random(seed)
    received: list[Any] = []
    held: Any = None
    waiting = False
    waited = 0
    bits = _bits(stream.payload)
    count = check_int("Count", count, 0)
    while len(received) < count:
        ready = not (stalls and rng.random() < stalls)
        if not always_ready:
            ctx.set(stream.ready, int(ready))
        _, _, valid, payload, raw = await ctx.tick().sample(stream.valid, stream.payload, bits)
        if waiting and not valid:
            raise StreamError(f"Valid fell before payload {len(received)} was taken")
        if waiting and raw != held:
            raise StreamError(
                f"Payload {len(received)} changed from {held:#x} to {raw:#x} before it was taken"
            )
        waiting, held = bool(valid and not ready), raw
        if valid and ready:
            received.append(plain(payload))
            waited = 0
        elif ready:
            waited += 1
            if waited >= limit:
                raise BenchTimeout(f"Payload {len(received)} did not come within {limit} cycles")
    if not always_ready:
        ctx.set(stream.ready, 0)
    return received


async def put(ctx: Any, stream: Any, payload: Any, *, limit: int = 1000) -> None:
    """Send one payload; see :func:`put_many`."""
    await put_many(ctx, stream, [payload], limit=limit)


async def get(ctx: Any, stream: Any, *, limit: int = 1000) -> Any:
    """Receive one payload; see :func:`get_many`."""
    return (await get_many(ctx, stream, 1, limit=limit))[0]


def _check_loops(dut: Any) -> None:
    if not isinstance(dut, wiring.Component):
        return
    # The ports are named here because the default takes the constants of always-valid and
    # always-ready streams for ports and fails.
    ports = {}
    for path, _, port in dut.signature.flatten(dut):
        value = _bits(port)
        if isinstance(value, Signal):
            ports["__".join(map(str, path))] = (value, None)
    to_rtlil(dut, ports=ports)


def simulate(
    dut: Any,
    *testbenches: Bench,
    background: Sequence[Bench] = (),
    processes: Sequence[Bench] = (),
    reset: Signal | None = None,
    max_cycles: int = 100_000,
    vcd: str | Path | None = None,
    check_loops: bool = True,
) -> int:
    """Run testbenches on a block, each in its own coroutine, until the last of them ends.

    Parameters
    ----------
    dut : Elaboratable
        In the clock domain ``sync``, or combinational.
    *testbenches : async functions of a SimulatorContext
        The run ends when all have returned.
    background : sequence of async functions
        Testbenches that may run on, such as monitors.
    processes : sequence of async functions
        Models of hardware, such as :func:`haloconv.sim.memory.memory_process`.
    reset : Signal or None
        Set it from a testbench to reset the clock domain.
    max_cycles : int
        Most clock cycles of the run.
    vcd : path or None
        Write a waveform there.
    check_loops : bool
        Convert a block that is a component first, which refuses combinational loops; the
        simulator would hang in them.

    Returns
    -------
    int
        Clock cycles that passed.

    Raises
    ------
    BenchTimeout
        If the testbenches have not ended after ``max_cycles``.
    OSError
        If ``vcd`` cannot be written.
    """
    if check_loops:
        _check_loops(dut)
    top = Module()
    domain: Any = ClockDomain("sync")
    top.domains.sync = domain
    top.submodules.dut = dut
    if reset is not None:
        top.d.comb += domain.rst.eq(reset)
    cycles = 0

    async def count(ctx: Any) -> None:
        nonlocal cycles
        async for _ in ctx.tick():
            cycles += 1
            if cycles > max_cycles:
                raise BenchTimeout(f"The testbenches did not end within {max_cycles} cycles")

    simulator = Simulator(top)
    if vcd is not None:
        # A path that cannot be written fails before there are benches that would never run.
        Path(vcd).open("w").close()
    simulator.add_clock(1e-8)
    for bench in testbenches:
        simulator.add_testbench(bench)
    for bench in background:
        simulator.add_testbench(bench, background=True)
    for process in (count, *processes):
        simulator.add_process(process)
    with ExitStack() as stack:
        if vcd is not None:
            stack.enter_context(simulator.write_vcd(str(vcd)))
        simulator.run()
    return cycles
