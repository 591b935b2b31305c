"""Bias and scale of the output channels of two tiles."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from haloconv.planner.config import EngineConfig
from haloconv.rtl.block_memory import block_memory
from haloconv.rtl.widths import index_bits

__all__ = ["ChannelParameters", "ParameterTable", "ParameterWrite"]


class ChannelParameters(data.StructLayout):
    """Bias, multiplier (or float32 scale bits) and shift of one output channel."""

    def __init__(self) -> None:
        super().__init__({"bias": signed(32), "multiplier": unsigned(32), "shift": signed(6)})


class ParameterWrite(data.StructLayout):
    """One channel's bias, or its scale, for requantiser ``lane`` in table row ``row``."""

    def __init__(self, config: EngineConfig) -> None:
        rows = 2 * config.channel_groups * config.group_steps
        super().__init__(
            {
                "row": unsigned(index_bits(rows)),
                "lane": unsigned(index_bits(config.results_per_cycle)),
                "bias": 1,
                "scale": 1,
                "value": unsigned(32),
                "shift": signed(6),
            }
        )


class ParameterTable(wiring.Component):
    """Q channels a row, a row for each drain step.

    Timing: latency 1; one read and one write a cycle. A write can be read in the next cycle. A word
    that is read as it is written gives anything (:func:`~haloconv.rtl.block_memory.block_memory`):
    the drain has one half of the rows while the other is written.

    Resources: Q memories of 32 bits and Q of 38 bits, 2 * channel_groups * ceil(Pm / Q) rows each.

    Parameters
    ----------
    config : EngineConfig

    Members
    -------
    write : In(ParameterWrite)
        ``bias`` and ``scale`` are the write enables.
    has_bias : In(1)
        Low: biases read as 0.
    read_row : In
    data : Out(ArrayLayout(ChannelParameters, Q))
    """

    write: data.View
    has_bias: Signal
    read_row: Signal
    data: data.View

    latency = 1
    """Cycles from ``read_row`` to ``data``."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        layout = ParameterWrite(config)
        super().__init__(
            {
                "write": In(layout),
                "has_bias": In(1),
                "read_row": In(layout["row"].shape),
                "data": Out(data.ArrayLayout(ChannelParameters(), config.results_per_cycle)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config
        rows = 2 * config.channel_groups * config.group_steps
        for lane in range(config.results_per_cycle):
            here = self.write.lane == lane
            for name, bits, value in (
                ("bias", 32, self.write.value),
                ("scale", 38, Cat(self.write.value, self.write.shift)),
            ):
                m.submodules[f"{name}_{lane}"] = memory = block_memory(bits, rows)
                # The register behind the port is written out, for its reset.
                write_port, read_port = memory.write_port(), memory.read_port(domain="comb")
                entry = self.data[lane]
                target = (
                    Value.cast(entry.bias)
                    if name == "bias"
                    else Cat(Value.cast(entry.multiplier), Value.cast(entry.shift))
                )
                read = Signal(bits, reset_less=True, name=f"read_{name}_{lane}")
                m.d.sync += read.eq(read_port.data)
                if name == "bias":
                    with m.If(~self.has_bias):
                        m.d.sync += read.eq(0)
                m.d.comb += [
                    write_port.en.eq(here & self.write[name]),
                    write_port.addr.eq(self.write.row),
                    write_port.data.eq(value),
                    read_port.addr.eq(self.read_row),
                    target.eq(read),
                ]
        return m
