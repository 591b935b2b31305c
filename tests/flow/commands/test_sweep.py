"""``haloconv sweep``: what it prints, its files and its exit codes."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from haloconv.flow.cli import main
from haloconv.flow.sweep import runner

SUPPORT = Path(__file__).parents[2] / "support"
SPACE = """
[engine]
input_bytes = 1024
weight_bytes = 1024
psum_bytes = 1024
bias_bytes = 64
[grid]
lanes = ["1x2", "2x2"]
[workloads]
first = { layer = "8x8x3 k3 p1 m8" }
"""
FAILING = '[[points]]\nlanes = "1x1"\ninput_bytes = 1\n'


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SUPPORT))
    monkeypatch.setenv("FAKE_CALLS", str(tmp_path / "calls"))
    import fake_tools  # pyright: ignore[reportMissingImports]

    monkeypatch.setattr(runner, "Tools", lambda: fake_tools.TOOLS)
    return fake_tools


def run(capsys: pytest.CaptureFixture[str], folder: Path, text: str, *more: str) -> Any:
    path = folder / "space.toml"
    path.write_text(text)
    code = main(["sweep", str(path), "-o", str(folder / "out"), *more])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_table_and_files(fake: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, tmp_path, SPACE, "--jobs", "1")
    assert (code, err) == (0, "")
    values = json.loads((tmp_path / "out" / "sweep.json").read_text())
    for point in values["points"]:
        (line,) = [line for line in out.splitlines() if f"{point['area']['lut4']:,}" in line]
        assert line.split()[0] == f"{point['config']['out_lanes']}x{point['config']['split_lanes']}"
        assert f"{point['workloads']['first']['cycles']:,}" in line
    assert "2 points, 0 failed; 4 results computed in" in out
    table = (tmp_path / "out" / "sweep.csv").read_text()
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["id"] for row in rows] == [point["id"] for point in values["points"]]

    code, out, _ = run(capsys, tmp_path, SPACE, "--json")
    assert code == 0 and json.loads(out) == values
    assert out == json.dumps(values, sort_keys=True, indent=2) + "\n"
    code, out, _ = run(capsys, tmp_path, SPACE)
    assert "2 points, 0 failed; 0 results computed in" in out


def test_failures_show_in_the_exit_code(
    fake: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, tmp_path, SPACE.replace("[workloads]", FAILING + "[workloads]"))
    assert (code, err) == (1, "")
    assert "3 points, 1 failed" in out
    (line,) = [line for line in out.splitlines() if line.startswith("FAILED")]
    assert "first: layer '8x8x3 k3 p1 m8': no tile" in line


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        ("points = 1", (), "points must be an array of tables"),
        (SPACE.replace("first = {", "first = { targets = 1,"), (), "'targets' is no key of"),
        (SPACE.replace("k3", "k9 q"), (), "'q' is unknown in a layer"),
        (SPACE, ("--dask", "tcp://127.0.0.1:1", "--jobs", "1"), "--jobs and --dask exclude"),
        (SPACE, ("--jobs", "0"), "0 is not in the range"),
        (SPACE, ("--dask", "nowhere"), "no Dask scheduler answers at nowhere"),
    ],
)
def test_errors_are_one_line(
    fake: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    more: tuple[str, ...],
    message: str,
) -> None:
    code, out, err = run(capsys, tmp_path, text, *more)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and message in err
    assert not (tmp_path / "calls").exists()


def test_an_interrupt_leaves_what_was_finished(
    fake: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = runner.Sweep._keep

    def interrupt(self: Any, job: Any, outcome: Any) -> None:
        keep(self, job, outcome)
        if len(self.store.get("synthesis", [job.key])) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(runner.Sweep, "_keep", interrupt)
    code, out, err = run(capsys, tmp_path, SPACE, "--jobs", "1")
    assert (code, out) == (130, "") and "interrupted" in err
    values = json.loads((tmp_path / "out" / "sweep.json").read_text())
    # The plans come first, and the heaviest synthesis.
    assert values["missing"] == 1
    assert [point["config"]["out_lanes"] for point in values["points"]] == [2]
    monkeypatch.setattr(runner.Sweep, "_keep", keep)
    code, out, _ = run(capsys, tmp_path, SPACE, "--jobs", "1")
    assert code == 0 and "; 1 results computed" in out


@pytest.mark.slow
def test_real_synthesis(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SPACE.replace(
        'lanes = ["1x2", "2x2"]', 'lanes = ["1x1"]\nbus_bytes = [2]\naddress_bits = [16]'
    )
    code, out, err = run(capsys, tmp_path, text, "--jobs", "1", "--json")
    assert (code, err) == (0, ""), out
    values = json.loads(out)
    (point,) = values["points"]
    # A multiplier for the lane, and those of one requantiser.
    assert 1 < point["area"]["dsps"] < 10
    assert point["area"]["luts"] > 1000 and point["area"]["block_rams"] > 2
    for name in ("luts", "ffs", "dsps", "block_rams"):
        assert sum(area[name] for area in point["blocks"].values()) == point["area"][name]
    assert values["tool"] != "fake 1"
