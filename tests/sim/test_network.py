"""Whole networks on the simulated engine: public models, and small ones node by node."""

import json
import random

import numpy as np
import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import PlanError
from haloconv.planner.network_file import read_network
from haloconv.planner.network_program import compile_network
from haloconv.sim.backend import choose_backend
from haloconv.sim.network import run_network, run_program
from haloconv.sim.network_golden import golden_network

from ..support.networks import LARGE_ENGINE as ENGINE
from ..support.networks import SMALL_ENGINE as SMALL
from ..support.networks import NetworkBuilder
from .test_network_golden import FUSED, MODELS, TFLM, bitmap, digest, model, seeded

SLOW = pytest.mark.slow

COMPILED = choose_backend("auto").name == "cxxrtl"
needs_compiler = pytest.mark.skipif(not COMPILED, reason="no compiled simulation on this machine")


def check_promises(result, slack=0):
    """What the planner promised came true, and the records add up.

    Predictions hold for tensors that start at a multiple of 64 bytes; parts of concatenations and
    items of batches may not, and take a cycle of ``slack`` each.
    """
    report = result.report()
    assert report.cycles == result.cycles == result.counters["cycles"]
    assert 0 <= report.cycles - report.predicted_cycles <= slack
    assert report.predicted_moved_bytes == report.moved_bytes
    on_engine = [layer for layer in result.layers if layer.where == "engine"]
    assert sum(layer.cycles for layer in on_engine) == result.cycles
    for layer in on_engine:
        assert 0 <= layer.cycles - layer.predicted_cycles <= slack
        assert 0 <= layer.utilisation <= 1
    return report


# Public models


LIMITS = {
    "resnet8_cifar10_int8": 225_000,
    "kws_dscnn_int8": 60_000,
    "person_detect_int8_litert": 165_000,
}


@SLOW
@needs_compiler
@pytest.mark.parametrize(
    "name",
    [
        "mobilenetv2_100_224_ptq_int8",
        "ssd_slim_120x160_int8",
        "mobilenetv2_035_160_int8",
        "resnet8_cifar10_int8",
        "person_detect_int8_litert",
        "kws_dscnn_int8",
        "ad01_autoencoder_int8",
        "micro_speech_int8",
        "mnv1_025_partial_int8",
        "hello_world_int8",
    ],
)
def test_every_tensor_of_a_model_hashes_as_litert(name):
    path = model(name)
    network = read_network(path, target="litert")
    result = run_network(
        network, ENGINE, inputs=seeded(network), backend="cxxrtl", keep_tensors=True
    )
    entries = json.loads((MODELS / "golden_ref.json").read_text())[path.name]["ops"]
    absent = [entry["op"] for entry in entries if entry["tensor"] not in result.tensors]
    assert absent == ["PAD"] * FUSED.get(name, 0)
    for entry in entries:
        if entry["tensor"] in result.tensors:
            found = result.tensors[entry["tensor"]]
            assert list(found.shape) == entry["shape"]
            assert found.dtype.name == entry["dtype"]
            assert digest(found) == entry["sha256"], f"{entry['op']} at {entry['index']}"
    check_promises(result)
    assert result.cycles <= LIMITS.get(name, result.cycles)
    # Without every tensor in memory of its own, less memory gives the same.
    if name in ("resnet8_cifar10_int8", "kws_dscnn_int8"):
        again = run_network(network, ENGINE, inputs=seeded(network), backend="cxxrtl")
        assert again.program.activation_bytes < result.program.activation_bytes
        assert again.tensors == {}
        assert again.cycles == result.cycles
        for one, other in zip(again.outputs, result.outputs, strict=True):
            np.testing.assert_array_equal(one, other)


@SLOW
@needs_compiler
@pytest.mark.parametrize(
    "name", sorted(name for name in TFLM if "224" not in name and "litert" not in name)
)
def test_outputs_of_a_model_hash_as_tflm(name):
    network = read_network(model(name), target="tflm")
    result = run_network(network, ENGINE, inputs=seeded(network), backend="cxxrtl")
    assert [digest(values) for values in result.outputs] == TFLM[name]
    check_promises(result)


@SLOW
@needs_compiler
@pytest.mark.parametrize(("picture", "scores"), [("person", [4, -4]), ("no_person", [77, -77])])
def test_person_detection_on_sample_images(picture, scores):
    path = model("person_detect_int8")
    grey = bitmap(MODELS / f"{picture}.bmp").astype(np.int16)
    x = (grey - 128).astype(np.int8).reshape(1, 96, 96, 1)
    result = run_network(path, ENGINE, inputs=[x], target="tflm", backend="cxxrtl")
    assert result.outputs[0].ravel().tolist() == scores


@SLOW
@needs_compiler
def test_stalls_do_not_change_a_model():
    network = read_network(model("kws_dscnn_int8"), target="litert")
    x = seeded(network)
    still = run_network(network, ENGINE, inputs=x, backend="cxxrtl")
    for seed in (1, 2):
        stalled = run_network(network, ENGINE, inputs=x, backend="cxxrtl", stalls=0.2, seed=seed)
        np.testing.assert_array_equal(stalled.outputs[0], still.outputs[0])
        assert stalled.cycles > still.cycles
        assert stalled.report().moved_bytes == still.report().moved_bytes


@SLOW
@needs_compiler
def test_sized_engine_needs_no_more_cycles_than_asked_for():
    path = model("resnet8_cifar10_int8")
    config = EngineConfig.for_network(path, budget_bytes=65536)
    assert config.budget_bytes <= 65536
    assert config.lanes == 64
    assert compile_network(read_network(path), config).cycles <= LIMITS["resnet8_cifar10_int8"]


# Small networks: every tensor as the golden model has it


def check(builder, *outputs, host=(), seed=0, config=SMALL, **options):
    """Run in both layouts of memory; return the result that kept its tensors."""
    network = builder.network(*outputs)
    inputs = builder.data(seed)
    expected = golden_network(network, inputs)
    result = run_network(
        network, config, inputs=inputs, backend="auto", keep_tensors=True, **options
    )
    assert [layer.operator for layer in result.layers if layer.where == "host"] == list(host)
    assert set(result.tensors) == set(expected)
    for index, values in expected.items():
        np.testing.assert_array_equal(result.tensors[index], values, f"tensor {index}")
    packed = run_network(network, config, inputs=inputs, backend="auto", **options)
    assert packed.tensors == {}
    assert packed.program.activation_bytes <= result.program.activation_bytes
    assert len(result.outputs) == len(packed.outputs) == len(outputs)
    for index, *found in zip(outputs, result.outputs, packed.outputs, strict=True):
        for values in found:
            assert values.dtype == expected[index].dtype
            np.testing.assert_array_equal(values, expected[index], f"output {index}")
    return result


@pytest.mark.parametrize("subtract", [False, True])
@pytest.mark.parametrize("shape", [(1, 5, 7, 3), (1, 1, 1, 1), (1, 3, 11, 13)])
def test_residual_sums(shape, subtract):
    b = NetworkBuilder(1)
    x = b.input(*shape)
    y = b.conv(x, shape[3], (3, 3), pads=(1, 1, 1, 1))
    result = check(b, b.add(x, y, subtract=subtract))
    check_promises(result)


def test_a_tensor_plus_itself():
    b = NetworkBuilder(2)
    x = b.input(1, 4, 5, 3)
    check_promises(check(b, b.add(x, x)))


def test_maximum_pooling_with_pads():
    b = NetworkBuilder(3)
    x = b.input(1, 7, 6, 5)
    y = b.conv(x, 5, (1, 1))
    z = b.pool(y, (3, 2), (2, 2), (1, 1, 0, 0), maximum=True)
    check_promises(check(b, b.conv(z, 2)))


def test_average_pooling_and_its_padded_form():
    b = NetworkBuilder(4)
    x = b.input(2, 6, 6, 5)
    y = b.pool(x, (2, 3), (2, 1))
    window = {"kernel": (3, 3), "stride": (2, 2), "pads": (1, 1, 1, 1), "clamp": (-128, 127)}
    z = b.host("AVERAGE_POOL_2D", y, (2, 2, 2, 5), **window)
    result = check(b, b.conv(z, 3, (1, 1)), host=["AVERAGE_POOL_2D"])
    assert len(result.program.steps) == 3
    report = check_promises(result)
    assert report.host_elements == 2 * 2 * 2 * 5
    assert report.engine_elements == 2 * 3 * 4 * 5 + 2 * 2 * 2 * 3
    assert report.host_share == 40 / (40 + 144)
    assert result.layers[1].reason == "AVERAGE_POOL_2D has no unit in the engine"


@pytest.mark.parametrize("axis", [1, -3])
def test_concatenation_along_rows_is_a_matter_of_addresses(axis):
    b = NetworkBuilder(5)
    x = b.input(1, 4, 3, 5)
    parts = [b.conv(x, 3, (2, 1)), b.conv(x, 3, (1, 1)), b.conv(x, 3, (3, 1))]
    y = b.concatenate(axis, *parts)
    result = check(b, b.conv(y, 4, (2, 2)), parts[2])
    addresses = result.program.addresses
    assert [addresses[part] - addresses[y] for part in parts] == [0, 27, 63]
    check_promises(result, slack=3)


def test_concatenation_of_flattened_vectors():
    b = NetworkBuilder(6)
    x = b.input(1, 3, 4, 5)
    flat = [b.view(b.conv(x, c, (2, 2)), 1, 6 * c) for c in (3, 1)]
    y = b.concatenate(1, *flat)
    result = check(b, b.dense(y, 7))
    assert result.program.addresses[flat[1]] == result.program.addresses[y] + 18


def test_concatenation_of_channels_moves_on_the_host():
    b = NetworkBuilder(7)
    x = b.input(1, 3, 4, 5)
    y = b.concatenate(3, b.conv(x, 3, (2, 2)), b.conv(x, 2, (2, 2)))
    result = check(b, b.conv(y, 4, (1, 1)), host=["CONCATENATE"])
    assert "addresses cannot" in result.layers[2].reason
    check_promises(result)


def test_concatenation_of_batches_is_not_in_place_along_rows():
    b = NetworkBuilder(8)
    x = b.input(2, 2, 3, 4)
    y = b.concatenate(1, b.conv(x, 4, (1, 1)), b.conv(x, 4, (1, 1)))
    check(b, b.conv(y, 4, (1, 1)), host=["CONCATENATE"])
    b = NetworkBuilder(8)
    x = b.input(2, 2, 3, 4)
    y = b.concatenate(0, b.conv(x, 4, (1, 1)), b.conv(x, 4, (1, 1)))
    check(b, b.conv(y, 4, (1, 1)))


def test_concatenations_that_share_a_part():
    # Only one of them can have it in place.
    b = NetworkBuilder(9)
    x = b.input(1, 2, 3, 4)
    first, second, third = (b.conv(x, 4, (1, 1)) for _ in range(3))
    y, z = b.concatenate(1, first, second), b.concatenate(1, first, third)
    check(b, y, z, b.add(y, z), host=["CONCATENATE"])


def test_concatenation_of_concatenations():
    b = NetworkBuilder(10)
    x = b.input(1, 2, 3, 4)
    first, second = b.conv(x, 4, (1, 1)), b.conv(x, 4, (1, 1))
    y, z = b.concatenate(1, first, second), b.concatenate(1, second, first)
    check(b, b.concatenate(1, y, z), host=["CONCATENATE"])


def test_concatenation_of_one_part_twice_and_of_an_input():
    b = NetworkBuilder(11)
    x = b.input(1, 2, 3, 4)
    y = b.conv(x, 4, (1, 1))
    twice, with_input = b.concatenate(1, y, y), b.concatenate(1, x, y)
    check(b, b.add(twice, with_input), host=["CONCATENATE", "CONCATENATE"])


def test_pad_as_a_move():
    b = NetworkBuilder(12)
    x = b.input(1, 3, 4, 2)
    y = b.pad(b.conv(x, 3, (2, 2)), (0, 0), (1, 0), (0, 2), (1, 1))
    check_promises(check(b, b.conv(y, 2, (2, 2)), host=["PAD"]))


@pytest.mark.parametrize("batch", [1, 3])
def test_dense_layers_take_batches(batch):
    b = NetworkBuilder(13)
    x = b.input(batch, 19)
    result = check(b, b.dense(b.dense(x, 12), 5))
    assert [planned.descriptors for planned in result.program.planned] == [batch, batch]
    assert result.report().macs == batch * (19 * 12 + 12 * 5)
    check_promises(result, slack=2 * (batch - 1))


def test_views_of_views():
    b = NetworkBuilder(14)
    x = b.input(1, 24)
    y = b.view(b.view(x, 1, 1, 12, 2), 1, 3, 4, 2)
    z = b.view(b.view(b.conv(y, 4, (2, 2)), 1, 24), 1, 1, 1, 24)
    result = check(b, b.view(z, 2, 12), b.view(x, 4, 6))
    addresses = result.program.addresses
    assert addresses[y] == addresses[x]
    assert len(result.layers) == 1


def test_an_output_that_is_read_again():
    b = NetworkBuilder(15)
    x = b.input(1, 4, 4, 3)
    y = b.conv(x, 3, (3, 3), pads=(1, 1, 1, 1))
    z = b.conv(y, 3, (3, 3), pads=(1, 1, 1, 1))
    for _ in range(3):
        z = b.conv(z, 3, (1, 1))
    check(b, y, z, y)


def test_an_input_that_is_read_twice_and_is_an_output():
    b = NetworkBuilder(16)
    x, other = b.input(1, 4, 4, 3), b.input(1, 2, 2, 1)
    y = b.add(b.conv(x, 3, (1, 1)), x)
    check(b, b.conv(y, 2), x, other)


def test_network_without_nodes():
    b = NetworkBuilder(17)
    x = b.input(1, 3)
    result = check(b, x)
    assert (result.cycles, result.layers, result.backend) == (0, (), "none")


def test_network_on_the_host_alone():
    b = NetworkBuilder(18)
    x = b.input(1, 2, 3, 4)
    y = b.move("transpose", (x,), (1, 4, 3, 2), permutation=(0, 3, 2, 1))
    result = check(b, y, host=["TRANSPOSE"])
    assert result.report().host_share == 1.0
    assert result.report().utilisation == 0.0


def test_raw_sums_as_output():
    b = NetworkBuilder(19)
    x = b.input(2, 4, 4, 3)
    y = b.conv(x, 5, raw=True)
    check_promises(check(b, y))


def test_grouped_and_depthwise_layers():
    b = NetworkBuilder(20)
    x = b.input(1, 6, 5, 6)
    y = b.conv(x, 6, (3, 2), (1, 2), groups=6, bias=False)
    z = b.conv(y, 8, (2, 2), groups=2)
    check_promises(check(b, b.conv(z, 16, (1, 1), groups=8)))


def test_layers_on_the_host_between_layers_on_the_engine():
    b = NetworkBuilder(21)
    x = b.input(1, 4, 4, 3)
    y = b.conv(x, 4, (1, 1))
    z = b.move("slice", (y,), (1, 2, 4, 4), begin=(0, 1, 0, 0), end=(1, 3, 4, 4), strides=(1,) * 4)
    w = b.move("repeat", (z,), (1, 4, 4, 4), factors=(1, 2, 1, 1))
    result = check(b, b.rescale(b.add(w, y)), b.product(z, 7), host=["SLICE", "REPEAT"])
    assert [layer.operator for layer in result.layers] == (
        ["CONV_2D", "SLICE", "REPEAT", "ADD", "QUANTIZE", "MUL"]
    )
    check_promises(result)


def grow(seed):
    """Random nodes on random earlier tensors."""
    b, numbers = NetworkBuilder(seed), random.Random(seed)
    depth = numbers.choice([1, 3, 4, 6])
    tensors = [b.input(1, numbers.randint(2, 6), numbers.randint(2, 6), depth)]
    if numbers.random() < 0.3:
        tensors.append(b.input(*b.shape(tensors[0])))
    for _ in range(numbers.randint(3, 9)):
        x = numbers.choice(tensors[-4:])
        n, h, w, c = b.shape(x)
        alike = [t for t in tensors if b.shape(t) == b.shape(x)]
        beside = [t for t in tensors if b.shape(t)[2:] == (w, c)]
        kind = numbers.randrange(9)
        if kind <= 1:
            kernel = (numbers.randint(1, min(h, 3)), numbers.randint(1, min(w, 3)))
            pads = tuple(numbers.randint(0, 1) for _ in range(4))
            y = b.conv(x, numbers.choice([c, 2 * c, 5]), kernel, pads=pads)
        elif kind == 2:
            y = b.conv(x, c, (min(h, 2), min(w, 3)), (1, 2), (1, 0, 0, 1), groups=c)
        elif kind == 3:
            kernel = (min(h, 2), min(w, 2))
            y = b.pool(x, kernel, (1, 1), (0, 1, 1, 0), maximum=True)
        elif kind == 4:
            y = b.pool(x, (min(h, 2), 1), (1, 1))
        elif kind <= 6 and len(alike) > 1:
            y = b.add(x, numbers.choice(alike), subtract=kind == 6)
        elif kind == 7 and h + sum(b.shape(t)[1] for t in beside[-2:]) <= 16:
            # Joined tensors still have one scale: nobody looks at it.
            y = b.concatenate(1, x, *beside[-2:])
        elif kind == 8 and w % 2 == 0:
            y = b.view(x, n, 2 * h, w // 2, c)
        else:
            y = b.rescale(x)
        tensors.append(y)
    outputs = {tensors[-1], numbers.choice(tensors)}
    return b, sorted(outputs)


@pytest.mark.skipif(not COMPILED, reason="takes too long in Amaranth's simulator")
@pytest.mark.parametrize("seed", range(24))
def test_random_networks(seed):
    b, outputs = grow(seed)
    network, inputs = b.network(*outputs), b.data(seed)
    expected = golden_network(network, inputs)
    for keep in (True, False):
        result = run_network(
            network, SMALL, inputs=inputs, backend="cxxrtl", keep_tensors=keep, latency=seed + 1,
            stalls=0.2 if seed % 3 == 0 else 0.0, seed=seed,
        )  # fmt: skip
        for index, values in result.tensors.items():
            np.testing.assert_array_equal(values, expected[index], f"tensor {index}")
        for index, values in zip(outputs, result.outputs, strict=True):
            np.testing.assert_array_equal(values, expected[index], f"output {index}")
        report = result.report()
        assert report.moved_bytes == report.predicted_moved_bytes
        if seed % 3:
            assert abs(result.cycles - report.predicted_cycles) <= 0.01 * result.cycles


def tiny():
    b = NetworkBuilder(31)
    x = b.input(1, 4, 5, 3)
    y = b.add(b.conv(x, 3, (3, 3), pads=(1, 1, 1, 1)), x)
    z = b.move("transpose", (y,), (1, 5, 4, 3), permutation=(0, 2, 1, 3))
    return b, b.pool(z, (2, 2), (2, 2), maximum=True)


@needs_compiler
@pytest.mark.parametrize("stalls", [0.0, (0.2, 0.3, 0.1)])
@pytest.mark.parametrize(
    "backend",
    ["cxxrtl", pytest.param("verilator", marks=SLOW)],
)
def test_all_simulators_agree(backend, stalls):
    b, y = tiny()
    options = {"inputs": b.data(), "stalls": stalls, "seed": 5, "keep_tensors": True}
    expected = run_network(b.network(y), SMALL, backend="amaranth", **options)
    found = run_network(b.network(y), SMALL, backend=backend, **options)
    assert (expected.backend, found.backend) == ("amaranth", backend)
    assert found.counters == expected.counters
    assert found.layers == expected.layers
    assert found.tensors.keys() == expected.tensors.keys()
    for index, values in expected.tensors.items():
        np.testing.assert_array_equal(found.tensors[index], values)


def test_progress_counts_over_the_whole_network():
    b, y = tiny()
    seen = []
    result = run_network(
        b.network(y), SMALL, inputs=b.data(), backend="auto",
        progress=lambda now, total: seen.append((now, total)),
    )  # fmt: skip
    assert seen
    assert {total for _, total in seen} == {result.report().predicted_cycles}
    cycles = [now for now, _ in seen]
    assert cycles == sorted(cycles)


def test_a_program_runs_on_other_inputs():
    b, y = tiny()
    network = b.network(y)
    program = compile_network(network, SMALL)
    for seed in (1, 2):
        x = b.data(seed)
        found = run_program(program, x, backend="auto").outputs[0]
        np.testing.assert_array_equal(found, golden_network(network, x)[y])


# What an engine lacks


def small(**changes):
    return EngineConfig.from_dict(SMALL.to_dict() | changes)


def nothing_runs(monkeypatch):
    def run(*_args, **_options):
        raise AssertionError("something ran")

    monkeypatch.setattr("haloconv.sim.network.run", run)
    monkeypatch.setattr("haloconv.sim.network._run_on_host", run)


def test_options_left_open_follow_the_network():
    b, y = tiny()
    program = compile_network(b.network(y), small(roundings=None, units=None))
    assert program.config.roundings == ("double",)
    assert program.config.units == ("elementwise", "max_pool")
    b = NetworkBuilder()
    y = b.pool(b.input(1, 2, 2, 3), (2, 2), (1, 1))
    program = compile_network(b.network(y), small(roundings=None, units=None))
    assert (program.config.roundings, program.config.units) == (("away",), ())


def test_a_declined_elementwise_unit_leaves_sums_to_the_host():
    b, y = tiny()
    network, x = b.network(y), b.data()
    # Amaranth's simulator: not worth a build of its own.
    result = run_network(network, small(units=["max_pool"]), inputs=x, backend="amaranth")
    np.testing.assert_array_equal(result.outputs[0], golden_network(network, x)[y])
    assert [(layer.operator, layer.where) for layer in result.layers] == [
        ("CONV_2D", "engine"),
        ("ADD", "host"),
        ("TRANSPOSE", "host"),
        ("MAX_POOL_2D", "engine"),
    ]
    assert result.layers[1].reason == "the engine has no elementwise unit"
    report = check_promises(result)
    assert report.host_share == (60 + 60) / (60 + 60 + 60 + 12)
    record = report.to_dict()["layers"][1]
    assert (record["where"], record["cycles"], record["elements"]) == ("host", 0, 60)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"units": ["elementwise"]}, "MAX_POOL_2D 'max_pool_2d 3' needs the unit 'max_pool'"),
        ({"roundings": ["away"]}, "CONV_2D 'conv_2d 0': rounding 'double' is not built into"),
        (
            {"input_bytes": 18, "weight_bytes": 12, "psum_bytes": 0},
            "CONV_2D 'conv_2d 0': no tile of .* takes input_bytes 54 or more",
        ),
        ({"address_bits": 16, "psum_bytes": 0}, None),
    ],
)
def test_what_does_not_suit_is_refused_before_anything_runs(monkeypatch, changes, message):
    nothing_runs(monkeypatch)
    b, y = tiny()
    if message is None:  # more memory than the engine addresses
        b = NetworkBuilder()
        y = b.rescale(b.input(1, 200, 200, 1))
        message = "network needs [0-9]+ bytes of memory but the engine addresses 65536; raise"
    with pytest.raises(PlanError, match=message):
        run_network(b.network(y), small(**changes), inputs=b.data())


def test_sums_need_their_rounding_in_the_engine(monkeypatch):
    nothing_runs(monkeypatch)
    b = NetworkBuilder()
    y = b.rescale(b.input(1, 3, 3, 1))
    config = small(roundings=["away"])
    with pytest.raises(PlanError, match="QUANTIZE 'quantize 0': rounding 'double' is not built"):
        run_network(b.network(y), config, inputs=b.data())


def test_inputs_are_checked_before_anything_runs(monkeypatch):
    nothing_runs(monkeypatch)
    b, y = tiny()
    network = b.network(y)
    with pytest.raises(ValueError, match="inputs must be 1 arrays, not 2"):
        run_network(network, SMALL, inputs=b.data() * 2)
    with pytest.raises(TypeError, match="input 't0' must be int8, not uint8"):
        run_network(network, SMALL, inputs=[b.data()[0].view(np.uint8)])
    with pytest.raises(ValueError, match=r"must have shape \(1, 4, 5, 3\), not \(4, 5, 3\)"):
        run_network(network, SMALL, inputs=[b.data()[0][0]])
    with pytest.raises(ValueError, match=r"Stalls must be below 1 for a run to finish, not 1\.0"):
        run_network(network, SMALL, inputs=b.data(), stalls=1.0)
