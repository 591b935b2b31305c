"""Latencies of the engine's blocks that the schedule needs; tests hold them against the RTL."""

from haloconv.planner.config import EngineConfig

__all__ = [
    "SERIAL_CYCLES",
    "chunk_bytes",
    "has_spare_registers",
    "hold_cycles",
    "lanes_latency",
    "queue_latency",
    "release_latency",
    "requantizer_latency",
    "result_latency",
    "results_room",
    "row_cycles",
    "run_latency",
    "scale_entry_bytes",
    "segments_waiting",
    "tree_levels",
]

SERIAL_CYCLES = 32
"""Cycles from a sum to its result in a serial requantiser, and from one sum to the next."""


def scale_entry_bytes(config: EngineConfig) -> int:
    """Bytes of a channel in the scale table: multiplier, shift and, if built, its zero point."""
    return 6 if config.weight_zero_points else 5


def chunk_bytes(config: EngineConfig) -> int:
    """Most bytes that the loader takes a cycle: a halo word, a row of weights or a scale."""
    return max(config.word_bytes, config.split_lanes, config.out_lanes, scale_entry_bytes(config))


def lanes_latency(config: EngineConfig) -> int:
    """Cycles from a step of the tap walker to its sum: halo buffer, operands, lanes."""
    rotator = (config.split_lanes - 1).bit_length()
    # Behind the halo buffer and before the multipliers.
    registers = 2 if has_spare_registers(config) else 0
    return (2 + rotator) + 2 + 1 + registers


def tree_levels(config: EngineConfig) -> int:
    """Registers of the drain's tree of adders, which also picks columns."""
    return max(1, (config.split_lanes - 1).bit_length())


def release_latency(config: EngineConfig) -> int:
    """Cycles from a tile's first group of sums to the release of the parameters before."""
    return lanes_latency(config) + tree_levels(config) - 1


def requantizer_latency(config: EngineConfig) -> int:
    """Cycles of a requantiser; raw results take as many."""
    if not config.built_roundings:
        return 1  # one register
    if config.serial_requantizers:
        return SERIAL_CYCLES
    # Alignment, four stages of the product, three of the shift, addition, clamp; "fp32" brings the
    # sum to 24 bits in three more.
    return 13 if "fp32" in config.built_roundings else 10


def row_cycles(config: EngineConfig) -> int:
    """Cycles from one row of results to the next, of raw sums and of stored ones too."""
    return SERIAL_CYCLES if config.serial_requantizers and config.built_roundings else 1


def has_spare_registers(config: EngineConfig) -> bool:
    """Whether registers stand on long ways, behind memories and before multipliers: they are left
    out beside serial requantisers, where area comes before the clock."""
    return row_cycles(config) == 1


def hold_cycles(config: EngineConfig, rows: int) -> int:
    """Cycles from the last step of a group of sums with ``rows`` rows to the first of the next.

    Beside serial requantisers no register takes the sums over: they stay in the lanes until the
    last row was taken, and two cycles more, in which they are cleared.
    """
    pace = row_cycles(config)
    return 1 if pace == 1 else (rows - 1) * pace + 3


def queue_latency(config: EngineConfig) -> int:
    """Cycles of the queue between requantisers and writer; one is a register behind its memory."""
    return 3 if has_spare_registers(config) else 2


def run_latency(config: EngineConfig) -> int:
    """Cycles from a segment asked for until the gearbox knows where its bytes lie: a register, the
    queue, and two more registers where there are any to spare."""
    return 5 if has_spare_registers(config) else 3


def segments_waiting(config: EngineConfig) -> int:
    """Segments that wait for the burst splitter behind one that it has; of two, the second lies
    in a register of its own, so that the splitter's ``ready`` goes no further."""
    return 2 if has_spare_registers(config) else 1


def result_latency(config: EngineConfig) -> int:
    """Cycles from the last step of a group of sums until its first row can be written."""
    # A register of the sums, the shadow or that of lanes that keep them; tree; start of the sum.
    drain = 1 + tree_levels(config) + 1
    return lanes_latency(config) + drain + requantizer_latency(config) + queue_latency(config)


def results_room(config: EngineConfig) -> int:
    """Result rows that fit between requantisers and writer.

    Two groups of sums in row mode, and more rows than are under way in the pipeline, so that a
    writer that keeps up never makes the lanes wait.
    """
    return 2 * config.split_lanes * config.group_steps + 48
