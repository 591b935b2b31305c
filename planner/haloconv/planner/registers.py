"""Register map of the engine: one table for RTL, simulation, headers and documents."""

from enum import IntEnum

__all__ = [
    "COUNTERS",
    "COUNTERS_BUILT",
    "IDENTITY",
    "REVISION",
    "ErrorCode",
    "Register",
    "built_counters",
]

IDENTITY = 0x48414C4F
"""Register 0 of every engine: "HALO"."""
REVISION = 2
"""Register 1: changes with the register map or the descriptor."""


class Register(IntEnum):
    """Word index of each register. Counters are 64 bits wide, low word first."""

    IDENTITY = 0
    """0x48414C4F, "HALO"."""
    REVISION = 1
    """2; changes with the register map or the descriptor."""
    LANES = 2
    """[7:0] Pm, [15:8] Pr, [23:16] bus bytes, [31:24] Q."""
    OPTIONS = 3
    """[4:0] rounding modes built in, by code; [8] weight zero points; [9] elementwise unit; [10]
    maximum pooling; [11] all counters, else that of cycles alone; [31:16] address bits."""
    INPUT_WORDS = 4
    """Words of one half of one halo buffer bank."""
    WEIGHT_WORDS = 5
    """Words of one half of the weight buffer."""
    PSUM_WORDS = 6
    """Words of the accumulator bank."""
    CHANNEL_GROUPS = 7
    """Groups of Pm output channels in the tables."""
    CONTROL = 8
    """Write [0] start, [1] abort."""
    STATUS = 9
    """[0] busy, [1] done, [2] error; done and error hold until the next start. [31:16] descriptors
    finished since start, modulo 65536."""
    ERROR_CODE = 10
    """Why the engine stopped, by the codes below."""
    ERROR_DETAIL = 11
    """Index of the descriptor at fault."""
    PROGRAM_LOW = 12
    """Byte address of the first descriptor, a multiple of the bus width."""
    PROGRAM_HIGH = 13
    LAYERS = 14
    """Descriptors finished since start."""
    CYCLES = 16
    """From start to the last write accepted."""
    COMPUTE_CYCLES = 18
    """Cycles in which the multiply lanes took operands."""
    LOAD_STALL_CYCLES = 20
    """Cycles in which a tile waited for its operands."""
    DRAIN_STALL_CYCLES = 22
    """Cycles in which the lanes waited for the drain, the requantisers or the write port."""
    INPUT_BYTES = 24
    """Inputs read."""
    WEIGHT_BYTES = 26
    """Weights read."""
    BIAS_BYTES = 28
    """Biases read."""
    SUM_BYTES = 30
    """Spilled partial sums, read and written."""
    OUTPUT_BYTES = 32
    """Results written."""
    SCALE_BYTES = 34
    """Multipliers, shifts, weight zero points and elementwise tables."""
    PROGRAM_BYTES = 36
    """Descriptors read."""


COUNTERS: dict[str, Register] = {
    "cycles": Register.CYCLES,
    "compute_cycles": Register.COMPUTE_CYCLES,
    "load_stall_cycles": Register.LOAD_STALL_CYCLES,
    "drain_stall_cycles": Register.DRAIN_STALL_CYCLES,
    "input_bytes": Register.INPUT_BYTES,
    "weight_bytes": Register.WEIGHT_BYTES,
    "bias_bytes": Register.BIAS_BYTES,
    "sum_bytes": Register.SUM_BYTES,
    "output_bytes": Register.OUTPUT_BYTES,
    "scale_bytes": Register.SCALE_BYTES,
    "program_bytes": Register.PROGRAM_BYTES,
}
"""The 64-bit counters by the names that results show."""

COUNTERS_BUILT = 1 << 11
"""The bit of OPTIONS that says that there are all counters."""


def built_counters(options: int) -> dict[str, Register]:
    """Return the counters of the engine whose OPTIONS read so; the others read 0."""
    if options & COUNTERS_BUILT:
        return dict(COUNTERS)
    return {"cycles": Register.CYCLES}


class ErrorCode(IntEnum):
    """Why an engine stopped."""

    NONE = 0
    DESCRIPTOR = 1
    """The program address is no multiple of the bus width, or the descriptor does not start with
    its mark, or it asks for something that is not built in."""
    LIMIT = 2
    """The descriptor's tile does not fit the built memories."""
    READ = 3
    """A read beat came back with an error."""
    WRITE = 4
    """A write failed."""
    ABORTED = 5
    """The host asked for it."""
