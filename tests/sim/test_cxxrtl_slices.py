"""Slices and words of many parts in C++, against Python's integers."""

import itertools
import random
import subprocess

import pytest

from haloconv.sim.backends import cxxrtl
from haloconv.sim.backends.build_cache import compiler
from haloconv.sim.backends.compiled import HARNESS

MISSING = cxxrtl.unavailable()
WIDTHS = (1, 1, 2, 9, 31, 32, 33, 40, 63, 64, 65, 96, 128, 200)
PROGRAM = """\
#include "cxxrtl_slices.h"
#include <cstdio>
using namespace cxxrtl;
template <size_t Bits> void show(const value<Bits> &shown) {
    for (size_t n = shown.chunks; n-- > 0;)
        std::printf("%08x", (unsigned)shown.data[n]);
    std::printf("\\n");
}
int main() {
"""


class Program:
    """Statements over some values, and what they print."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.values = [self.rng.getrandbits(width) for width in WIDTHS]
        self.lines = [
            f"value<{width}> v{index}{{{self.chunks(value, width)}}};"
            for index, (width, value) in enumerate(zip(WIDTHS, self.values, strict=True))
        ]
        self.expected: list[int] = []

    @staticmethod
    def chunks(value: int, width: int) -> str:
        return ", ".join(f"{value >> low & 0xFFFFFFFF:#x}u" for low in range(0, width, 32))

    def slice(self, index: int) -> tuple[str, int, int, int]:
        """Some bits of a value: as text, its index, lowest bit and width."""
        low = self.rng.randrange(WIDTHS[index])
        high = self.rng.randrange(low, WIDTHS[index])
        if self.rng.random() < 0.3:
            return f"v{index}", index, 0, WIDTHS[index]
        return f"v{index}.slice<{high}, {low}>()", index, low, high - low + 1

    def show(self, text: str, value: int) -> None:
        self.lines.append(f"show({text});")
        self.expected.append(value)

    def bits(self, index: int, low: int, width: int) -> int:
        return self.values[index] >> low & ((1 << width) - 1)

    @staticmethod
    def joined(parts: list[tuple[str, int, int, int]]) -> str:
        first, *others = (text for text, *_ in parts)
        return first + "".join(f".concat({text})" for text in others)

    def read(self) -> None:
        parts = [self.slice(self.rng.randrange(len(WIDTHS))) for _ in range(self.rng.randint(2, 9))]
        whole = 0
        for _, index, low, width in parts:
            whole = whole << width | self.bits(index, low, width)
        total = sum(part[3] for part in parts)
        high = self.rng.randrange(total)
        self.show(f"({self.joined(parts)}).val()", whole)
        cut = f"({self.joined(parts)}).slice<{high}, {high // 2}>().val()"
        self.show(cut, whole >> high // 2 & ((1 << high - high // 2 + 1) - 1))

    def shuffle(self) -> None:
        """A value becomes its own parts in another order."""
        index = self.rng.randrange(4, len(WIDTHS))
        width = WIDTHS[index]
        cuts = [0, *sorted(self.rng.sample(range(1, width), self.rng.randint(2, 6))), width]
        parts = [
            (f"v{index}.slice<{high - 1}, {low}>()", index, low, high - low)
            for low, high in itertools.pairwise(cuts)
        ]
        self.rng.shuffle(parts)
        whole = 0
        for _, _, low, size in parts:
            whole = whole << size | self.bits(index, low, size)
        self.lines.append(f"v{index} = {self.joined(parts)};")
        self.values[index] = whole
        self.show(f"v{index}", whole)

    def write(self) -> None:
        """Parts of several values at once."""
        parts = [
            self.slice(index)
            for index in self.rng.sample(range(len(WIDTHS)), self.rng.randint(2, 6))
        ]
        total = sum(part[3] for part in parts)
        given = self.rng.getrandbits(total)
        source = f"value<{total}>{{{self.chunks(given, total)}}}"
        self.lines.append(f"{self.joined(parts)} = {source};")
        for _, index, low, width in reversed(parts):
            mask = ((1 << width) - 1) << low
            self.values[index] = self.values[index] & ~mask | given << low & mask
            given >>= width
            self.show(f"v{index}", self.values[index])


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.parametrize("seed", range(2))
def test_slices_and_many_parts(tmp_path, seed):
    print(f"seed {seed}")
    program = Program(seed)
    for _ in range(12):
        program.read()
        program.shuffle()
        program.write()
    path, binary = tmp_path / "parts.cc", tmp_path / "parts"
    path.write_text(PROGRAM + "\n".join(program.lines) + "\n}\n", encoding="utf-8")
    options = ["-std=c++17", "-O0", f"-I{cxxrtl._runtime()}", f"-I{HARNESS}"]
    command = [str(compiler()), *options, "-o", str(binary), str(path)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    shown = subprocess.run([str(binary)], check=True, capture_output=True, text=True).stdout
    assert [int(line, 16) for line in shown.split()] == program.expected
