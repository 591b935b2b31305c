"""How far the area model is off, engine by engine; and its training data.

python bench/area_model.py DIR... [--family ecp5] [--write]

Each DIR is what ``haloconv sweep -o DIR`` wrote. With --write their areas become the training data
that the package keeps, in place of the present ones.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from haloconv.flow.explore.model import FOLDER, AreaModel, read_samples
from haloconv.flow.report import console, new_table


def compact(path: Path) -> list[dict[str, Any]]:
    """Return what the model needs of a sweep's results: parameters and areas."""
    record = json.loads((path / "sweep.json" if path.is_dir() else path).read_text())
    points = []
    for point in record["points"]:
        if point["area"] is None:
            continue
        blocks = {
            name: {key: count for key, count in area.items() if count and key != "lut4"}
            for name, area in point["blocks"].items()
        }
        points.append(
            {
                "area": {key: count for key, count in point["area"].items() if key != "lut4"},
                "blocks": {name: area for name, area in blocks.items() if area},
                "config": point["config"],
            }
        )
    return points


def write(paths: list[Path], family: str) -> Path:
    """Write the training data of a family."""
    record = json.loads((paths[0] / "sweep.json").read_text())
    points = [json.dumps(point, sort_keys=True) for path in paths for point in compact(path)]
    kept = {name: record.get(name) for name in ("family", "format", "sources", "tool")}
    head = json.dumps(kept, sort_keys=True)
    path = FOLDER / f"{family}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(head[:-1] + ', "points": [\n' + ",\n".join(points) + "\n]}\n")
    return path


def main(argv: list[str] | None = None) -> int:
    """Print the table and the errors, and write the data if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--family", default="ecp5")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args(argv)
    samples = [s for path in arguments.folders for s in read_samples(path, arguments.family)]
    model = AreaModel(arguments.family, samples)
    table = new_table("lanes", "bus", "results", "LUT + 2 carry", "fitted", "off", "FF", "fitted",
                      "off", "DSP", "fitted", "RAM", "worked out")  # fmt: skip
    for sample in samples:
        config, area, found = sample.config, sample.area, model.predict(sample.config)
        table.add_row(
            f"{config.out_lanes}x{config.split_lanes}",
            str(config.bus_bytes),
            str(config.results_per_cycle),
            *(f"{area.lut4:,}", f"{found.lut4:,}", f"{100 * found.lut4 / area.lut4 - 100:+.1f} %"),
            *(f"{area.ffs:,}", f"{found.ffs:,}", f"{100 * found.ffs / area.ffs - 100:+.1f} %"),
            *(str(area.dsps), str(found.dsps), str(area.block_rams), str(found.block_rams)),
        )
    out = console()
    out.print(table)
    out.print(model.errors.sentence(), soft_wrap=True)
    started = time.perf_counter()
    for sample in samples:
        model.predict(sample.config)
    each = (time.perf_counter() - started) / len(samples)
    out.print(f"{1000 * each:.2f} ms for an answer")
    if arguments.write:
        out.print(f"wrote {write(arguments.folders, arguments.family)}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
