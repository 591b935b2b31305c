"""Runs the console examples of the READMEs and puts their output there.

``python docs/examples.py`` rewrites them; ``--check`` only says whether they are up to date.
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", ROOT / "examples" / "digits" / "README.md")
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
            [sys.executable, "-m", *arguments],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        lines.append(line)
        lines += [text.rstrip() for text in done.stdout.strip("\n").splitlines()]
    return "```console\n" + "\n".join(lines) + "\n```\n"


def main() -> int:
    """Rewrite the pages, or with ``--check`` return 1 where one is out of date."""
    code = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fresh = BLOCK.sub(run_block, text)
        if fresh == text:
            continue
        if "--check" in sys.argv[1:]:
            name = page.relative_to(ROOT).as_posix()
            print(f"{name} is out of date; run python docs/examples.py", file=sys.stderr)
            code = 1
        else:
            page.write_text(fresh, encoding="utf-8", newline="\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
