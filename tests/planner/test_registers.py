"""The register map is a contract with drivers: places and codes are written out here."""

import pytest

from haloconv.planner.registers import (
    COUNTERS,
    COUNTERS_BUILT,
    IDENTITY,
    REVISION,
    ErrorCode,
    Register,
    built_counters,
)


def test_identity_reads_halo():
    assert IDENTITY.to_bytes(4, "big") == b"HALO"
    assert 1 <= REVISION < 2**32


def test_places():
    assert {register.name: int(register) for register in Register} == {
        "IDENTITY": 0,
        "REVISION": 1,
        "LANES": 2,
        "OPTIONS": 3,
        "INPUT_WORDS": 4,
        "WEIGHT_WORDS": 5,
        "PSUM_WORDS": 6,
        "CHANNEL_GROUPS": 7,
        "CONTROL": 8,
        "STATUS": 9,
        "ERROR_CODE": 10,
        "ERROR_DETAIL": 11,
        "PROGRAM_LOW": 12,
        "PROGRAM_HIGH": 13,
        "LAYERS": 14,
        "CYCLES": 16,
        "COMPUTE_CYCLES": 18,
        "LOAD_STALL_CYCLES": 20,
        "DRAIN_STALL_CYCLES": 22,
        "INPUT_BYTES": 24,
        "WEIGHT_BYTES": 26,
        "BIAS_BYTES": 28,
        "SUM_BYTES": 30,
        "OUTPUT_BYTES": 32,
        "SCALE_BYTES": 34,
        "PROGRAM_BYTES": 36,
    }


def test_counters_take_two_words_each():
    words = [int(register) for register in Register if register not in COUNTERS.values()]
    for register in COUNTERS.values():
        assert register % 2 == 0
        words += [int(register), int(register) + 1]
    assert len(words) == len(set(words)) and max(words) < 256  # eight address bits


def test_counters_go_by_their_registers_names():
    assert {name.upper(): register for name, register in COUNTERS.items()} == {
        register.name: register
        for register in Register
        if register.name.endswith(("CYCLES", "BYTES"))
    }


@pytest.mark.parametrize("others", [0, 0xFFFF_F7FF])
def test_a_bit_of_the_options_tells_counters_that_are_not_built_from_zeros(others):
    assert COUNTERS_BUILT == 0x800
    assert built_counters(others) == {"cycles": Register.CYCLES}
    assert built_counters(others | COUNTERS_BUILT) == COUNTERS


def test_error_codes():
    assert {code.name: int(code) for code in ErrorCode} == {
        "NONE": 0,
        "DESCRIPTOR": 1,
        "LIMIT": 2,
        "READ": 3,
        "WRITE": 4,
        "ABORTED": 5,
    }
