# amaranth: UnusedElaboratable=no
"""The exported Verilog: clean in Verilator's lint, and the same engine as in Amaranth."""

import os
import re
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from amaranth.back import verilog

from haloconv.flow.export import TOP, engine_verilog
from haloconv.planner.config import EngineConfig
from haloconv.planner.layer import ConvLayer
from haloconv.planner.plan import plan_layer
from haloconv.planner.program import build_layer_program, read_outputs
from haloconv.planner.requantization import ROUNDINGS, Requantization
from haloconv.rtl.engine import Engine
from haloconv.sim.backend import run
from haloconv.sim.backends import verilator
from haloconv.sim.golden import golden_layer

MISSING = verilator.unavailable()
needs_verilator = pytest.mark.skipif(MISSING is not None, reason=f"Verilator: {MISSING}")

CONFIG = EngineConfig(
    out_lanes=2,
    split_lanes=3,
    bus_bytes=4,
    input_bytes=192,
    weight_bytes=120,
    psum_bytes=64,
    bias_bytes=16,
    roundings=("double", "fp32"),
)
LAYERS = {
    "dense": ConvLayer(6, 5, 5, 3, (3, 2), stride=(2, 1), pads=(1, 0, 2, 1), in_zero_point=-3),
    "depthwise": ConvLayer(5, 6, 5, 5, (3, 3), pads=(1, 1, 1, 1), groups=5, in_zero_point=9),
    "grouped": ConvLayer(4, 3, 4, 6, (2, 2), dilation=(2, 1), groups=2, has_bias=False),
}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(CONFIG)


@cache
def exported(config: EngineConfig) -> str:
    return engine_verilog(config)


def test_the_export_is_what_the_simulators_run(engine: Engine) -> None:
    """The Verilog that is simulated differs from the exported file in names, and in one form.

    The file gives Yosys' starting registers their value in an initial block, not where they are
    declared.
    """
    simulated = verilog.convert(engine, name="device", emit_src=False, strip_internal_attrs=True)
    ours = exported(CONFIG).replace(TOP, "device")
    ours = re.sub(r"reg (\\\$auto\S+) ;\n +initial \1 = 0;", r"reg \1  = 0;", ours)
    bodies = [text[text.index("module ") :] for text in (simulated, ours)]
    assert bodies[0] == bodies[1]


@needs_verilator
@pytest.mark.parametrize(
    "config",
    [
        pytest.param(CONFIG, id="2x3"),
        pytest.param(EngineConfig(out_lanes=1, split_lanes=1, bus_bytes=1, psum_bytes=0,
                                  roundings=(), weight_zero_points=False), id="1x1"),
        pytest.param(EngineConfig(out_lanes=5, split_lanes=4, bus_bytes=32, requant_lanes=2,
                                  roundings=ROUNDINGS, units=("elementwise", "max_pool")),
                     id="5x4"),
    ],
)  # fmt: skip
def test_lint(tmp_path: Path, config: EngineConfig) -> None:
    """Errors stop Verilator. Of its warnings those that mean a wrong circuit are errors too."""
    path = tmp_path / "engine.v"
    path.write_text(exported(config))
    tool = verilator._tool()
    assert tool is not None
    binary, root = tool
    fatal = ("LATCH", "MULTIDRIVEN", "UNOPTFLAT", "COMBDLY", "PINMISSING", "IMPLICIT", "SELRANGE",
             "UNDRIVEN")  # fmt: skip
    done = subprocess.run(
        [str(binary), "--lint-only", "-Wno-fatal", *(f"-Werror-{name}" for name in fatal),
         "--top-module", TOP, str(path)],
        capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "VERILATOR_ROOT": str(root)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "%Error" not in done.stderr


@needs_verilator
def test_lint_sees_faults(tmp_path: Path) -> None:
    """The lint above is not blind: a call of a function that is not there is refused."""
    path = tmp_path / "engine.v"
    text = exported(CONFIG)
    head, tail = text.rsplit("endmodule", 1)
    path.write_text(f"{head}  assign no_such_wire_[3] = missing_function(1'b0);\nendmodule{tail}")
    tool = verilator._tool()
    assert tool is not None
    binary, root = tool
    done = subprocess.run(
        [str(binary), "--lint-only", "-Wno-fatal", str(path)],
        capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "VERILATOR_ROOT": str(root)},
    )  # fmt: skip
    assert done.returncode != 0 and "%Error" in done.stderr


@needs_verilator
@pytest.mark.slow
@pytest.mark.parametrize("stalls", [0.0, (0.2, 0.4, 0.3)], ids=["free", "stalls"])
@pytest.mark.parametrize("name", LAYERS)
def test_verilator_runs_the_same(
    engine: Engine, name: str, stalls: float | tuple[float, float, float]
) -> None:
    """Memory, cycles, counters and registers agree, and the output is the golden model's."""
    layer = LAYERS[name]
    rng = np.random.default_rng(len(name))
    inputs = rng.integers(-128, 128, layer.input_shape, dtype=np.int8)
    weights = rng.integers(-128, 128, layer.weight_shape, dtype=np.int8)
    bias = rng.integers(-9999, 9999, layer.out_channels, dtype=np.int32)
    bias = bias if layer.has_bias else None
    scales = rng.uniform(1e-3, 1e-2, layer.out_channels).astype(np.float32)
    scale = Requantization(scale=scales, zero_point=-4, rounding="fp32")
    if name == "grouped":
        scale = Requantization(multiplier=2**30 + 12345, shift=-7, clamp=(-77, 99))
    plan = plan_layer(layer, CONFIG)
    program = build_layer_program(
        layer, CONFIG, plan.tile, plan.mode, plan.order, inputs=inputs, weights=weights, bias=bias,
        requantization=scale,
    )  # fmt: skip
    results = [
        run(engine, program.image, program_address=program.program_address, latency=7,
            stalls=stalls, seed=3, max_cycles=100_000, backend=backend)
        for backend in ("amaranth", "verilator")
    ]  # fmt: skip
    ours, theirs = results
    assert ours.backend.name == "amaranth" and theirs.backend.name == "verilator"
    np.testing.assert_array_equal(ours.memory, theirs.memory)
    for what in ("cycles_simulated", "counters", "registers", "status", "error_code", "traffic"):
        assert getattr(ours, what) == getattr(theirs, what), what
    output = read_outputs(program, theirs.memory, layer, raw=False)
    np.testing.assert_array_equal(output, golden_layer(layer, inputs, weights, bias, scale))
