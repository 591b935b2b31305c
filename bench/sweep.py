"""How long the example sweep takes from nothing, and when everything is known.

python bench/sweep.py [SPACE.toml] [-o DIR] [--jobs N]
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from haloconv.flow.cli import main as haloconv
from haloconv.flow.tools import processors

SPACE = Path(__file__).parents[1] / "examples" / "sweep" / "pareto.toml"


def main(argv: list[str] | None = None) -> int:
    """Sweep twice into a folder and print how long each took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("space", nargs="?", type=Path, default=SPACE)
    parser.add_argument("-o", "--output", type=Path, help="a folder; one for the time being")
    parser.add_argument("--jobs", type=int, default=processors())
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.output or Path(name)
        command = ["sweep", str(arguments.space), "-o", str(folder)]
        command += ["--jobs", str(arguments.jobs)]
        for title in ("from nothing", "once more"):
            started = time.monotonic()
            code = haloconv(command)
            seconds = time.monotonic() - started
            points = json.loads((folder / "sweep.json").read_text(encoding="utf-8"))["points"]
            print(f"{title}: {len(points)} points, {arguments.jobs} jobs, {seconds:.1f} s")
            if code:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
