"""The results as CSV, files and a table, from a record written down here."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from haloconv.flow import report
from haloconv.flow.sweep import results
from haloconv.flow.sweep.results import results_csv, results_table, write_results
from haloconv.planner.config import EngineConfig

AREA = {"luts": 5000, "ffs": 4000, "carries": 300, "lut_rams": 10, "dsps": 68, "block_rams": 40,
        "large_rams": 0, "lut4": 5600}  # fmt: skip


def record(count: int = 2, family: str = "ecp5") -> dict[str, Any]:
    work = {"cycles": 1000, "read_bytes": 64, "write_bytes": 32, "macs": 48000,
            "utilisation": 0.75, "fps": 100000.0, "layers": [], "host": []}  # fmt: skip
    names = [f"w{number}" for number in range(count)]
    good = {
        "id": "aaa", "status": "ok", "error": None, "given": {}, "tile": None, "area": AREA,
        "blocks": {}, "seconds": 1.0, "fmax_mhz": 101.5, "fmax_runs": [101.5],
        "config": EngineConfig(roundings=("double", "away")).to_dict(),
        "workloads": dict.fromkeys(names, work),
    }  # fmt: skip
    tile = {"height": 8, "width": 4, "in_channels": 3, "out_channels": 16}
    partial = good | {"id": "bbb", "status": "failed", "error": 'no, "never"', "tile": tile,
                      "workloads": {"w0": work}, "fmax_mhz": None}  # fmt: skip
    nothing = partial | {"id": "ccc", "config": None, "area": None, "workloads": {}}
    points = [good, partial, nothing]
    return {"workloads": {name: {} for name in names}, "fmax": {}, "points": points,
            "family": family}  # fmt: skip


def test_csv_has_a_row_for_each_point_and_workload() -> None:
    rows = list(csv.DictReader(io.StringIO(results_csv(record()))))
    assert [(row["id"], row["workload"]) for row in rows] == [
        ("aaa", "w0"), ("aaa", "w1"), ("bbb", "w0"), ("ccc", ""),
    ]  # fmt: skip
    first, _, partial, nothing = rows
    assert (first["lut4"], first["dsps"], first["fmax_mhz"]) == ("5600", "68", "101.5")
    assert (first["roundings"], first["out_lanes"], first["tile"]) == ("double away", "8", "")
    assert (first["cycles"], first["utilisation"]) == ("1000", "0.75")
    assert (partial["error"], partial["tile"]) == ('no, "never"', "8x4x3->16")
    assert (nothing["out_lanes"], nothing["luts"], nothing["cycles"]) == ("", "", "")


def text(values: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    report.console().print(results_table(values))
    return capsys.readouterr().out


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for line in text(record(), capsys).splitlines() if line.startswith(" 8x8")]
    assert len(lines) == 2
    # 2 * (4096 + 8192) + 7936 + 256 bytes of buffers.
    assert lines[0].split() == ["8x8", "8", "None", "32,768", "5,600", "4,000", "68", "40",
                                "101.5"] + 2 * ["1,000", "100,000.0", "75.0", "%"]  # fmt: skip
    assert lines[1].split()[8:] == ["-", "1,000", "100,000.0", "75.0", "%", "-", "-", "-"]


def test_luts_alone_where_carries_take_none(capsys: pytest.CaptureFixture[str]) -> None:
    out = text(record(family="xilinx"), capsys)
    assert "5,000" in out and "5,600" not in out


def test_table_of_many_workloads_shows_rates_alone(capsys: pytest.CaptureFixture[str]) -> None:
    out = text(record(5), capsys)
    assert "frames/s" in out and "cycles" not in out


def test_files_are_written_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_results(tmp_path, record())
    assert json.loads((tmp_path / "sweep.json").read_text()) == record()
    before = (tmp_path / "sweep.json").read_bytes()

    def full(source: Path, target: Path) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(results.os, "replace", full)
    with pytest.raises(OSError):
        write_results(tmp_path, record(1))
    assert (tmp_path / "sweep.json").read_bytes() == before
