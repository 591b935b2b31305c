"""The C header says what the program says, and C compilers take it."""

import importlib.util
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from haloconv.flow.c_header import HEADER, c_header
from haloconv.planner.config import EngineConfig
from haloconv.planner.network_file import read_network
from haloconv.planner.network_program import NetworkProgram, compile_network

_spec = importlib.util.spec_from_file_location(
    "small_network", Path(__file__).parents[1] / "support" / "small_network.py"
)
assert _spec is not None and _spec.loader is not None
small: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(small)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> NetworkProgram:
    path = tmp_path_factory.mktemp("model") / "chain.tflite"
    path.write_bytes(small.chain())
    network = read_network(path)
    # A name that would end the comment it stands in.
    tensors = dict(network.tensors)
    tensors[0] = replace(tensors[0], name="odd */ näme /*")
    config = EngineConfig(out_lanes=2, split_lanes=2, bus_bytes=4, bias_bytes=64)
    return compile_network(replace(network, tensors=tensors), config)


def macros(text: str) -> dict[str, str]:
    found = re.findall(r"^#define HALOCONV_(\w+) (.+?)(?: /\*.*)?$", text, re.MULTILINE)
    assert len({name for name, _ in found}) == len(found), "a name is defined twice"
    return dict(found)


def test_values(program: NetworkProgram) -> None:
    text = c_header(program)
    assert text == c_header(program)
    found = macros(text)
    assert found["IMAGE_BYTES"] == f"{program.image.size}u"
    assert (found["RUNS"], found["INPUTS"], found["OUTPUTS"]) == ("2u", "1u", "1u")
    assert int(found["INPUT0_ADDRESS"][:-1], 16) == program.addresses[0]
    assert found["INPUT0_ADDRESS"] == found["TENSOR0_ADDRESS"]
    assert int(found["OUTPUT0_ADDRESS"][:-1], 16) == program.addresses[7]
    assert found["OUTPUT0_SHAPE"] == "{1, 6, 6, 3}" and found["OUTPUT0_ELEMENTS"] == "108u"
    assert found["INPUT0_ZERO_POINT"] == "(-5)"
    # The scales as the model gives them, float32 of 0.02 and 0.01.
    assert float(found["INPUT0_SCALE"][:-1]) == pytest.approx(0.02, rel=1e-7)
    assert float(found["OUTPUT0_SCALE"][:-1]) == pytest.approx(0.01, rel=1e-7)
    # By the register map: 2 lanes, 2 split lanes, 4 bytes, 2 requantisers.
    assert found["BUILT_LANES"] == "0x02040202u" and found["BUILT_IDENTITY"] == "0x48414C4Fu"
    assert (found["REG_CONTROL"], found["REG_STATUS"], found["REG_CYCLES"]) == ("8u", "9u", "16u")
    assert found["OPTIONS_COUNTERS"] == "0x800u"
    assert (found["ERROR_NONE"], found["ERROR_ABORTED"]) == ("0u", "5u")
    assert "/* Host, operator 1: LOGISTIC, tensors 3 to 4 */" in text


@pytest.mark.parametrize(("compiler", "standard"), [("cc", "c99"), ("g++", "c++17")])
def test_compiles(program: NetworkProgram, tmp_path: Path, compiler: str, standard: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    (tmp_path / HEADER).write_text(c_header(program), encoding="utf-8")
    uses = "\n".join(
        f"  sum += (double)HALOCONV_{name};"
        for name, value in macros(c_header(program)).items()
        if not value.startswith("{")
    )
    source = f"""\
#include "{HEADER}"
#include "{HEADER}"
#include <stdio.h>
static const int shape[] = HALOCONV_OUTPUT0_SHAPE;
int main(void) {{
  double sum = 0;
{uses}
  printf("%d %d %u\\n", (int)(sizeof shape / sizeof shape[0]), shape[3], HALOCONV_RUN1_PROGRAM);
  return sum > 0 ? 0 : 1;
}}
"""
    path = tmp_path / ("main.c" if compiler == "cc" else "main.cc")
    path.write_text(source, encoding="utf-8")
    command = [compiler, f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    subprocess.run([*command, path.name, "-o", "main"], cwd=tmp_path, check=True, timeout=60)
    done = subprocess.run(
        [str(tmp_path / "main")], capture_output=True, text=True, timeout=60, check=True
    )
    second = [step for step in program.steps if hasattr(step, "program_address")][1]
    assert done.stdout == f"4 3 {second.program_address}\n"  # type: ignore[union-attr]
