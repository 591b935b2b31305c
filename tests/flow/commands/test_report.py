"""``haloconv report``."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from haloconv.flow.cli import main

BUILDER = Path(__file__).parents[2] / "support" / "sweep_builder.py"


def builder() -> Any:
    spec = importlib.util.spec_from_file_location("sweep_builder", BUILDER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    return builder().sweep()


@pytest.fixture
def folder(content: dict[str, Any], tmp_path: Path) -> Path:
    (tmp_path / "sweep.json").write_text(json.dumps(content), encoding="utf-8")
    return tmp_path


def test_page_goes_beside_the_results(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder)]) == 0
    page = folder / "report.html"
    text = page.read_text(encoding="utf-8")
    assert "<title>Engines on ECP5</title>" in text
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"{page}: {page.stat().st_size:,} bytes\n"


def test_page_to_stdout(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["report", str(folder / "sweep.json"), "-o", "-", "--title", "Mine & yours"]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("<!doctype html>")
    assert "<title>Mine &amp; yours</title>" in captured.out
    assert captured.err == ""
    assert not (folder / "report.html").exists()


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return ["".join(entry.itertext()) for entry in root.iter("{http://www.w3.org/2000/svg}text")]


def test_plots_alone(folder: Path) -> None:
    svg, png = folder / "plots" / "pareto.svg", folder / "plots" / "pareto.png"
    assert main(["report", str(folder), "--svg", str(svg), "--png", str(png)]) == 0
    assert not (folder / "report.html").exists()
    assert png.read_bytes().startswith(b"\x89PNG")
    shown = texts(svg.read_text(encoding="utf-8"))
    # The first workload that a point ran.
    assert "Engines on ECP5: LUT4 against cycles of separable" in shown
    assert any(text.startswith("16 engines, ") for text in shown)
    assert "Cycles a frame" in shown


def test_choice_of_the_plot(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["report", str(folder), "--svg", "-", "--x", "dsps", "--y", "fps"]
    assert main([*arguments, "--workload", "residual"]) == 0
    first = capsys.readouterr().out
    shown = texts(first)
    assert "Engines on ECP5: DSP blocks against frames a second of residual" in shown
    assert "DSP blocks" in shown
    # Another process draws the same.
    code = "from haloconv.flow.cli import entry; entry()"
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments, "--workload", "residual"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == first


def test_front_as_json(
    folder: Path, content: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(folder), "--json", "--y", "fps", "--workload", "residual"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert not (folder / "report.html").exists()
    assert {key: record[key] for key in ("family", "workload", "x", "y", "points")} == {
        "family": "ecp5",
        "workload": "residual",
        "x": "lut4",
        "y": "fps",
        "points": 15,
    }
    known = {point["id"]: point for point in content["points"][:15]}
    for entry in record["front"]:
        point = known[entry["id"]]
        assert entry["config"] == point["config"]
        assert entry["x"] == point["area"]["lut4"]
        fps = point["workloads"]["residual"]["fps"]
        assert entry["y"] == fps
        # None is as small and faster.
        assert not [
            other
            for other in known.values()
            if other["area"]["lut4"] <= entry["x"] and other["workloads"]["residual"]["fps"] > fps
        ]
    fastest = max(point["workloads"]["residual"]["fps"] for point in known.values())
    assert record["front"][-1]["y"] == fastest


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--x", "luts", "--svg", "-"], "luts is not known of this sweep; plot lut4, ffs"),
        (["--workload", "bert", "--svg", "-"], "'bert' is no workload of this sweep; it has"),
        (["--y", "speed", "--svg", "-"], "'speed' is not one of 'cycles', 'fps'"),
        (["--x", "lut4"], "--x, --y and --workload choose the plot of --svg, --png"),
        (["-o", "-", "--svg", "-"], "only one of -o -, --svg - and --json may"),
        (["--json", "--svg", "-"], "only one of -o -, --svg - and --json may"),
    ],
)
def test_wrong_options(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["report", str(folder), *options]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1
    assert captured.out == ""


def test_nothing_to_report(
    content: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "has no sweep.json; make it with haloconv sweep" in capsys.readouterr().err
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps(content | {"points": []}), encoding="utf-8")
    assert main(["report", str(tmp_path)]) == 2
    assert "has no points yet; run haloconv sweep first" in capsys.readouterr().err
    file.write_text(json.dumps(content | {"points": content["points"][-1:]}), encoding="utf-8")
    assert main(["report", str(tmp_path), "--svg", "-"]) == 2
    assert "so there is nothing to plot" in capsys.readouterr().err


def test_without_the_extra(folder: Path) -> None:
    code = (
        "import sys; sys.modules['vl_convert'] = None\n"
        "from haloconv.flow.cli import main\n"
        f"sys.exit(main(['report', {str(folder)!r}]))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "run pip install 'haloconv[report]'" in run.stderr
    assert len(run.stderr.splitlines()) == 1
