"""Pages made from tables are current."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_register_page_is_current() -> None:
    run = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "tables.py"), "--check"],
        env={
            "PYTHONPATH": ":".join(str(ROOT / room) for room in ("planner", "rtl", "sim", "flow"))
        },
        check=False,
    )
    assert run.returncode == 0, "run python docs/tables.py"
