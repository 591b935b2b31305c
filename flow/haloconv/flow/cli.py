"""The ``haloconv`` command: a thin layer of argument parsing over the planner and simulator."""

import os
import sys
import traceback
from collections.abc import Sequence

import click

from haloconv.flow.commands.build import build
from haloconv.flow.commands.compile import compile_model
from haloconv.flow.commands.demo import demo
from haloconv.flow.commands.explore import explore
from haloconv.flow.commands.gemm import gemm
from haloconv.flow.commands.host import host
from haloconv.flow.commands.plan import plan
from haloconv.flow.commands.pnr import pnr
from haloconv.flow.commands.report import report
from haloconv.flow.commands.run import run
from haloconv.flow.commands.simulate import simulate
from haloconv.flow.commands.sweep import sweep
from haloconv.flow.commands.synth import synth
from haloconv.flow.commands.verify import verify
from haloconv.flow.commands.verilog import verilog
from haloconv.flow.tools import ToolError
from haloconv.planner.version import __version__
from haloconv.sim.errors import SimulationError

__all__ = ["commands", "entry", "main"]

INTERRUPTED, READER_GONE = 130, 141
"""128 and the number of SIGINT or SIGPIPE, as shells have it."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="haloconv", message="%(prog)s %(version)s")
@click.option("--traceback", is_flag=True, help="Show where an error came from.")
def commands(traceback: bool) -> None:
    """Plan, simulate and export tiled int8 convolution engines.

    SOURCE is a .tflite model or a workload .json; most commands also take one layer in words, like
    --layer "32x32x16 k3 s1 p1 m32".
    """


for _command in (
    plan,
    simulate,
    verify,
    run,
    compile_model,
    verilog,
    synth,
    pnr,
    sweep,
    explore,
    report,
    build,
    host,
    gemm,
    demo,
):
    commands.add_command(_command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 is success, 1 a simulation that differs from the golden model, 2 an error, which is one line
    on stderr.
    """
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        code = commands.main(arguments, prog_name="haloconv", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "haloconv"
        return _fail(f"{error.format_message()} (see {path} --help)", arguments)
    except click.ClickException as error:
        return _fail(error.format_message(), arguments)
    except click.Abort:
        return _fail("interrupted", arguments, code=INTERRUPTED)
    except SystemExit:
        # Click leaves so, and only so, when the reader of our output has gone.
        return READER_GONE
    except BrokenPipeError:
        # The same at our own flush; the interpreter must not try once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _fail(f"{place}{error.strerror or error}", arguments)
    except (ValueError, ImportError, SimulationError, ToolError) as error:
        return _fail(str(error), arguments)


def _fail(message: str, arguments: Sequence[str], code: int = 2) -> int:
    if "--traceback" in arguments:
        traceback.print_exc()
    print(f"haloconv: {' '.join(message.split())}", file=sys.stderr)
    return code


def entry() -> None:
    """Run the command line and leave the interpreter with its exit code."""
    sys.exit(main())
