"""Runs the console examples of the README and puts their output there.

``python docs/examples.py`` rewrites README.md; ``--check`` only says whether it is up to date.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCK = re.compile(r"```console\n(.*?)```\n", re.DOTALL)


def run_block(match: re.Match[str]) -> str:
    """Return a console block with the output of each of its commands."""
    lines: list[str] = []
    for line in match[1].splitlines():
        if not line.startswith("$ "):
            continue
        arguments = shlex.split(line[2:])
        if arguments[0] != "haloconv":
            raise ValueError(f"examples run haloconv, not {arguments[0]!r}")
        done = subprocess.run(
            [sys.executable, "-m", *arguments], capture_output=True, text=True, check=True
        )
        lines.append(line)
        lines += [text.rstrip() for text in done.stdout.strip("\n").splitlines()]
    return "```console\n" + "\n".join(lines) + "\n```\n"


def main() -> int:
    """Rewrite the README, or with ``--check`` return 1 where it is out of date."""
    text = README.read_text(encoding="utf-8")
    fresh = BLOCK.sub(run_block, text)
    if "--check" in sys.argv[1:]:
        if fresh != text:
            print("README.md is out of date; run python docs/examples.py", file=sys.stderr)
            return 1
        return 0
    README.write_text(fresh, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
