"""Memory images of networks: descriptors, constants and tensors in their places."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES, decode
from haloconv.planner.elementwise import pack_tables
from haloconv.planner.errors import PlanError
from haloconv.planner.network import ConvNode, ElementwiseNode
from haloconv.planner.network_program import (
    EngineRun,
    HostStep,
    compile_network,
    configure,
    needed_options,
)
from haloconv.planner.plan import plan_layer
from haloconv.planner.program import pack_weights

from ..support.networks import NetworkBuilder

CONFIG = EngineConfig(
    out_lanes=4,
    split_lanes=2,
    bus_bytes=4,
    input_bytes=512,
    weight_bytes=512,
    psum_bytes=256,
    bias_bytes=64,
    roundings=("double", "away"),
    units=("elementwise", "max_pool"),
)


def sample():
    """Convolution, sum, pooling, a slice on the host, a batch of dense layers; and its parts."""
    b = NetworkBuilder(1)
    x = b.input(1, 6, 6, 4)
    y = b.conv(x, 4, (3, 3), pads=(1, 1, 1, 1))
    z = b.add(x, y)
    p = b.pool(z, (2, 2), (2, 2), maximum=True)
    s = b.move("slice", (p,), (1, 2, 3, 4), begin=(0, 1, 0, 0), end=(1, 3, 3, 4), strides=(1,) * 4)
    v = b.view(s, 2, 12)
    d = b.dense(v, 5)
    return b.network(d), {"x": x, "y": y, "z": z, "p": p, "s": s, "v": v, "d": d}


def descriptors(program, run):
    """Decode the descriptors of one run, up to the one that says it is the last."""
    found = []
    at = run.program_address
    while not found or not found[-1]["last"]:
        found.append(decode(program.image[at : at + DESCRIPTOR_BYTES].tobytes()))
        at += DESCRIPTOR_BYTES
    return found


def size(tensor):
    return int(np.prod(tensor.shape)) * np.dtype(tensor.dtype).itemsize


def test_runs_end_where_the_host_takes_over():
    network, t = sample()
    program = compile_network(network, CONFIG)
    assert [type(step) for step in program.steps] == [EngineRun, HostStep, EngineRun]
    first, host, second = program.steps
    assert [planned.node.operator for planned in first.nodes] == ["CONV_2D", "ADD", "MAX_POOL_2D"]
    assert host.node.outputs == (t["s"],)
    assert host.reason == "slice moves data in a way that addresses cannot"
    assert [planned.descriptors for planned in second.nodes] == [2]
    assert len(descriptors(program, first)) == 3
    assert len(descriptors(program, second)) == 2
    assert [planned.node for planned in program.planned] == [
        node for node in network.nodes if node.operator not in ("SLICE", "VIEW")
    ]


def test_descriptors_point_at_the_tensors():
    network, t = sample()
    program = compile_network(network, CONFIG)
    first, _, second = program.steps
    at = program.addresses
    conv, add, pool = descriptors(program, first)
    assert (conv["input_address"], conv["output_address"]) == (at[t["x"]], at[t["y"]])
    assert (add["input_address"], add["weight_address"]) == (at[t["x"]], at[t["y"]])
    assert (add["output_address"], add["elements"]) == (at[t["z"]], 144)
    assert (pool["input_address"], pool["output_address"]) == (at[t["z"]], at[t["p"]])
    assert [d["maximum"] for d in (conv, add, pool)] == [0, 0, 1]
    items = descriptors(program, second)
    assert at[t["v"]] == at[t["s"]]
    assert [d["input_address"] for d in items] == [at[t["v"]], at[t["v"]] + 12]
    assert [d["output_address"] for d in items] == [at[t["d"]], at[t["d"]] + 5]
    # Both items of the batch share weights, biases and scales.
    for name in ("weight_address", "bias_address", "scale_address"):
        assert items[0][name] == items[1][name]


def test_constants_are_where_descriptors_say():
    network, _ = sample()
    program = compile_network(network, CONFIG)
    conv, add, _ = descriptors(program, program.steps[0])
    node, total = network.nodes[0], network.nodes[1]
    assert isinstance(node, ConvNode) and isinstance(total, ElementwiseNode)
    plan = plan_layer(node.layer, CONFIG)
    for address, expected in (
        (
            conv["weight_address"],
            pack_weights(node.layer, CONFIG, plan.tile, plan.mode, node.weights),
        ),
        (conv["bias_address"], node.bias.astype("<i4").view(np.uint8)),
        (add["bias_address"], pack_tables(total.function)),
    ):
        np.testing.assert_array_equal(program.image[address : address + expected.size], expected)


@pytest.mark.parametrize("keep", [False, True])
def test_nothing_overlaps_what_is_still_needed(keep):
    network, t = sample()
    program = compile_network(network, CONFIG, keep_tensors=keep)
    ends = {
        index: (at, at + size(network.tensors[index])) for index, at in program.addresses.items()
    }
    assert set(ends) == set(network.tensors)
    assert max(end for _, end in ends.values()) <= program.image.size
    base = min(at for at, _ in ends.values())
    assert all(at % 64 == 0 for at, _ in ends.values())
    for run in (program.steps[0], program.steps[2]):
        for fields in descriptors(program, run):
            for name in ("weight_address", "bias_address", "scale_address"):
                # Constants lie below the tensors, apart from the sum's second operand.
                assert fields[name] < base or fields[name] == program.addresses[t["y"]]
    # Steps in which each tensor is alive: x and y until the sum, and so on along the chain.
    alive = {"x": (0, 2), "y": (1, 2), "z": (2, 3), "p": (3, 4), "s": (4, 5), "d": (5, 6)}
    if keep:
        alive = dict.fromkeys(alive, (0, 6))
    for one, other in combinations(alive, 2):
        if alive[one][0] <= alive[other][1] and alive[other][0] <= alive[one][1]:
            (a, b), (c, d) = ends[t[one]], ends[t[other]]
            assert b <= c or d <= a, (one, other)
    rounded = sum(-(-size(network.tensors[t[name]]) // 64) * 64 for name in alive)
    if keep:
        assert program.activation_bytes > sum(size(network.tensors[t[name]]) for name in alive)
        assert program.activation_bytes <= rounded
    else:
        # x, y and z (144 bytes each, 192 with alignment) are alive in the step of the sum.
        assert program.activation_bytes == 2 * 192 + 144


def test_predictions_are_those_of_the_layers():
    network, _ = sample()
    program = compile_network(network, CONFIG, latency=30)
    planned = list(program.planned)
    assert program.cycles == sum(entry.cycles for entry in planned)
    layer = network.nodes[0].layer
    plan = plan_layer(layer, CONFIG, latency=30)
    assert planned[0].cycles == plan.cycles
    assert planned[0].moved_bytes == plan.moved_bytes.total
    assert planned[0].macs == 6 * 6 * 4 * 9 * 4
    assert (planned[1].macs, planned[1].moved_bytes) == (0, 3 * 144)
    assert planned[3].macs == 2 * 12 * 5
    dense = plan_layer(network.nodes[5].layer, CONFIG, latency=30)
    assert planned[3].cycles == 2 * dense.cycles
    assert compile_network(network, CONFIG, latency=60).cycles > program.cycles


def test_the_same_network_gives_the_same_image():
    images = [compile_network(sample()[0], CONFIG).image for _ in range(2)]
    np.testing.assert_array_equal(*images)


def test_objective_reaches_the_tile_search():
    b = NetworkBuilder(2)
    y = b.conv(b.input(1, 14, 14, 8), 24, (3, 3))
    programs = {
        objective: compile_network(b.network(y), CONFIG, objective=objective)
        for objective in ("cycles", "bytes")
    }
    moved = {name: next(p.planned).moved_bytes for name, p in programs.items()}
    assert moved["bytes"] <= moved["cycles"]
    assert programs["cycles"].cycles <= programs["bytes"].cycles
    with pytest.raises(ValueError, match="objective must be"):
        compile_network(b.network(y), CONFIG, objective="speed")


def test_constant_tensors_are_part_of_the_image():
    b = NetworkBuilder(3)
    x = b.input(1, 3, 3, 2)
    codes = np.arange(18, dtype=np.int8).reshape(1, 3, 3, 2)
    c = b.tensor((1, 3, 3, 2), data=codes)
    y = b.add(x, c)
    program = compile_network(b.network(b.rescale(y)), CONFIG)
    at = program.addresses[c]
    np.testing.assert_array_equal(program.image[at : at + 18], codes.ravel().view(np.uint8))
    others = {program.addresses[index] for index in program.addresses if index != c}
    assert at not in others


def test_needed_options():
    network, _ = sample()
    assert needed_options(network) == (("double",), ("elementwise", "max_pool"))
    b = NetworkBuilder(4)
    network = b.network(b.pool(b.input(1, 4, 4, 2), (2, 2), (1, 1)))
    assert needed_options(network) == (("away",), ())
    b = NetworkBuilder(5)
    network = b.network(b.conv(b.input(1, 4, 4, 2), 3, raw=True))
    assert needed_options(network) == ((), ())
    b = NetworkBuilder(6)
    network = b.network(b.rescale(b.input(1, 4)))
    assert needed_options(network) == (("double",), ("elementwise",))


def test_options_that_are_set_stay():
    network, _ = sample()
    left_open = replace(CONFIG, roundings=None, units=None)
    found = configure(left_open, network)
    assert (found.roundings, found.units) == (("double",), ("elementwise", "max_pool"))
    assert configure(CONFIG, network) == CONFIG
    found = configure(replace(left_open, units=()), network)
    assert (found.roundings, found.units) == (("double",), ())


def test_the_default_engine_takes_what_the_network_needs():
    program = compile_network(sample()[0])
    assert program.config == replace(
        EngineConfig(), roundings=("double",), units=("elementwise", "max_pool")
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"units": ("elementwise",)}, "MAX_POOL_2D 'max_pool_2d 2' needs the unit 'max_pool'; add"),
        ({"roundings": ("away",)}, "CONV_2D 'conv_2d 0': rounding 'double' is not built into"),
        (
            {"input_bytes": 16, "psum_bytes": 0},
            "CONV_2D 'conv_2d 0': no tile of the layer fits the engine: it takes input_bytes",
        ),
    ],
)
def test_refusals_name_the_layer(changes, message):
    with pytest.raises(PlanError, match=message):
        compile_network(sample()[0], replace(CONFIG, **changes))


def test_weight_zero_points_must_be_built():
    b = NetworkBuilder(7)
    y = b.conv(b.input(1, 4, 4, 2), 3)
    network = b.network(y)
    node = replace(network.nodes[0], weight_zero_points=np.array([0, 3, 0]))
    network = replace(network, nodes=(node,))
    compile_network(network, CONFIG)
    with pytest.raises(PlanError, match="CONV_2D 'conv_2d 0': weight zero points are not built"):
        compile_network(network, replace(CONFIG, weight_zero_points=False))


def test_bias_must_agree_with_its_layer():
    b = NetworkBuilder(7)
    network = b.network(b.conv(b.input(1, 4, 4, 2), 3))
    node = network.nodes[0]
    layer = replace(node.layer, has_bias=node.bias is None)
    network = replace(network, nodes=(replace(node, layer=layer),))
    with pytest.raises(PlanError, match="CONV_2D 'conv_2d 0' must have a bias exactly where"):
        compile_network(network, CONFIG)


def test_memory_must_be_addressed():
    b = NetworkBuilder(8)
    network = b.network(b.rescale(b.input(1, 200, 200, 1)))
    with pytest.raises(PlanError, match=r"needs 8\d{4} bytes of memory .* 65536; raise"):
        compile_network(network, replace(CONFIG, address_bits=16))
    assert compile_network(network, replace(CONFIG, address_bits=17)).image.size <= 1 << 17


def test_a_concatenation_in_place_is_no_step():
    b = NetworkBuilder(9)
    x = b.input(1, 2, 3, 4)
    parts = [b.conv(x, 4, (1, 1)) for _ in range(3)]
    y = b.concatenate(1, *parts)
    program = compile_network(b.network(y), CONFIG)
    at = program.addresses
    assert [at[part] - at[y] for part in parts] == [0, 24, 48]
    assert [type(step) for step in program.steps] == [EngineRun]


def test_tensors_take_the_bytes_of_their_type():
    b = NetworkBuilder(10)
    x = b.input(1, 2, 3, 4)
    y, z = b.conv(x, 3, (1, 1), raw=True), b.conv(x, 3, (1, 1))
    program = compile_network(b.network(y, z), CONFIG, keep_tensors=True)
    # 24 codes, 18 sums of four bytes, 18 codes: all at multiples of 64.
    assert program.activation_bytes == 128 + 64 + 18
