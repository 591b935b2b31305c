# amaranth: UnusedElaboratable=no
"""Elementwise unit and maximum pooling through small programs on whole engines."""

import random

import numpy as np
import pytest

from haloconv.planner.config import EngineConfig
from haloconv.planner.descriptor import DESCRIPTOR_BYTES
from haloconv.planner.elementwise import (
    BLOCK_ROWS,
    ElementwiseAddresses,
    add_operator,
    describe_elementwise,
    elementwise_bytes,
    elementwise_cycles,
    pack_scale,
    pack_tables,
    product_operator,
    rescale_operator,
)
from haloconv.planner.layer import ConvLayer
from haloconv.planner.network import ConvNode, Network, NetworkTensor
from haloconv.planner.network_program import compile_network
from haloconv.planner.requantization import Requantization
from haloconv.rtl import elementwise as unit
from haloconv.sim import golden

from ..support.engine_bench import EngineBench

SMALL = dict(input_bytes=256, weight_bytes=256, psum_bytes=0, bias_bytes=64, roundings=("double",))


def engine(lanes, bus, q=None, **options):
    return EngineConfig(
        out_lanes=lanes[0],
        split_lanes=lanes[1],
        bus_bytes=bus,
        requant_lanes=q,
        **(SMALL | {"units": ("elementwise",), "address_bits": 16} | options),
    )


class Case:
    """An operator on random codes, and what the golden model makes of them."""

    def __init__(self, kind, elements, seed):
        rng, numbers = np.random.default_rng(seed), random.Random(seed)
        scales = [float(np.float32(numbers.uniform(0.01, 0.2))) for _ in range(3)]
        zeros = [numbers.randint(-128, 127) for _ in range(3)]
        clamp = numbers.choice([(-128, 127), (-100, 90), (zeros[2], 127)])
        self.a, self.b = rng.integers(-128, 128, (2, elements)).astype(np.int8)
        # Every pair of extremes, as far as they fit.
        corners = np.array([(-128, -128), (-128, 127), (127, -128), (127, 127)], np.int8)
        self.a[:4], self.b[:4] = corners[:elements].T
        x, y = (
            golden.Quantized(codes, scale, zero)
            for codes, scale, zero in zip((self.a, self.b), scales, zeros, strict=False)
        )
        same = golden.Quantized(self.b[:1], scales[1], zeros[1])
        given = (tuple(scales[:2]), tuple(zeros[:2]), scales[2], zeros[2], clamp)
        ends = (scales[2], zeros[2], clamp)
        code = int(self.b[0])
        if kind == "add":
            self.operator = add_operator(*given)
            self.expected = golden.add(x, y, *ends)
        elif kind == "subtract":
            self.operator = add_operator(*given, subtract=True)
            self.expected = golden.subtract(x, y, *ends)
        elif kind == "subtract a constant":
            self.operator = add_operator(*given, subtract=True, constant=code)
            self.expected = golden.subtract(x, same, *ends)
        elif kind == "product":
            self.operator = product_operator(*given, constant=code)
            self.expected = golden.multiply(x, same, *ends)
        else:
            assert kind == "rescale"
            self.operator = rescale_operator(scales[0], zeros[0], *ends)
            codes = golden.rescale(self.a.astype(np.int64) - zeros[0], scales[0] / scales[2])
            self.expected = np.clip(codes + zeros[2], *clamp).astype(np.int8)


KINDS = ("add", "subtract", "subtract a constant", "product", "rescale")


def lay_out(config, cases, shift=0):
    """Image of one program for all cases, and where their outputs are.

    With ``shift`` tensors begin so many bytes behind a multiple of 64.
    """
    end = -(-DESCRIPTOR_BYTES * len(cases) // 64) * 64
    blocks, descriptors, outputs = [], [], []

    def place(block, first=0):
        nonlocal end
        at = end + first
        blocks.append((at, block))
        end = -(-(at + block.size) // 64) * 64
        return at

    for number, case in enumerate(cases):
        a = place(case.a.view(np.uint8), shift)
        b = place(case.b.view(np.uint8), 2 * shift)
        tables = place(pack_tables(case.operator))
        scale = place(pack_scale(case.operator, config))
        # What is there before shows writes that go astray.
        output = place(np.full(case.a.size + 64, 0xA5, np.uint8), shift)
        descriptors.append(
            describe_elementwise(
                case.operator,
                case.a.size,
                ElementwiseAddresses(a, b, tables, scale, output),
                last=number == len(cases) - 1,
            )
        )
        outputs.append(output)
    image = np.zeros(end, np.uint8)
    for at, block in blocks:
        image[at : at + block.size] = block
    text = np.frombuffer(b"".join(descriptors), np.uint8)
    image[: text.size] = text
    return image, outputs


def run_cases(bench, cases, *, shift=0, **options):
    """Run the cases as one program, compare every output, and return what the engine counted."""
    image, outputs = lay_out(bench.config, cases, shift)
    outcome = bench.run(image, 0, max_cycles=100_000, **options)
    assert outcome.done
    assert outcome.layers == len(cases)
    for case, output in zip(cases, outputs, strict=True):
        size = case.a.size
        found = outcome.memory[output : output + size].view(np.int8)
        np.testing.assert_array_equal(found, case.expected)
        assert (outcome.memory[output + size : output + size + 64] == 0xA5).all()
    read, written = map(
        sum, zip(*(elementwise_bytes(case.operator, case.a.size) for case in cases), strict=True)
    )
    assert outcome.counters["input_bytes"] == read
    assert outcome.counters["output_bytes"] == written
    return outcome.counters


def test_planner_and_unit_agree_on_the_block():
    assert BLOCK_ROWS == unit.BLOCK_ROWS


# Q of 1, 2, 3, 4, 7 and 8 results, every width of the ports; sizes around one row and one block
# of 16 rows.
ENGINES = {
    "1x1 bus 1": (engine((1, 1), 1), (33,)),
    "2x2 bus 2": (engine((2, 2), 2, weight_zero_points=False), (31, 33)),
    "4x3 bus 4 Q 3": (engine((4, 3), 4, 3), (47, 48, 49)),
    "3x5 bus 8": (engine((3, 5), 8), (5, 200)),
    "8x2 bus 8": (engine((8, 2), 8), (7, 128, 300)),
    "7x1 bus 16": (engine((7, 1), 16, weight_zero_points=False), (113, 400)),
    "8x1 bus 32": (engine((8, 1), 32), (8, 600)),
    "8x2 bus 8, long": (engine((8, 2), 8), (2999,)),
    "4x1 bus 32, long": (engine((4, 1), 32), (1500,)),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if "long" in name else ()) for name in ENGINES],
)
def test_operators_are_exact_in_the_predicted_cycles(name):
    config, sizes = ENGINES[name]
    bench = EngineBench(config)
    numbers = random.Random(name)
    for number, size in enumerate(sizes):
        # One operand takes another path than two, so each size sees both.
        for kind in (KINDS[number % 2], KINDS[2 + number % 3]):
            case = Case(kind, size, seed=numbers.getrandbits(32))
            latency = numbers.choice([1, 16, 40])
            counters = run_cases(bench, [case], latency=latency)
            predicted = elementwise_cycles(case.operator, size, config, latency=latency)
            assert counters["cycles"] == predicted, (kind, size, latency)


@pytest.mark.parametrize(("name", "first"), [("4x3 bus 4 Q 3", 0), ("8x1 bus 32", 1)])
def test_stalls_and_odd_addresses_change_no_result(name, first):
    """Every other operator on one engine, the rest on the other."""
    config, _ = ENGINES[name]
    bench = EngineBench(config)
    for number, kind in list(enumerate(KINDS))[first::2]:
        case = Case(kind, 150 + number, seed=number)
        still = run_cases(bench, [case], shift=2 * number + 1)["cycles"]
        stalled = run_cases(
            bench, [case], shift=2 * number + 1, stalls=(0.3, 0.3, 0.3), seed=number
        )
        assert stalled["cycles"] > still


def test_layers_of_one_program_do_not_mix():
    """Tables, the scale and half-filled blocks are those of the layer at hand."""
    config = engine((4, 3), 8, 3)
    bench = EngineBench(config)
    kinds = ("add", "rescale", "subtract", "add", "product")
    cases = [
        Case(kind, size, seed=size) for kind, size in zip(kinds, (50, 7, 1, 97, 20), strict=True)
    ]
    cycles = run_cases(bench, cases)["cycles"]
    assert cycles == sum(elementwise_cycles(c.operator, c.a.size, config) for c in cases)


def test_operands_may_be_one_tensor():
    config = engine((4, 3), 8, 3)
    operator = add_operator((0.1, 0.1), (3, 3), 0.2, 3)
    codes = np.arange(-128, 128, dtype=np.int8)
    image = np.zeros(0x1000, np.uint8)
    for at, block in (
        (0x200, codes.view(np.uint8)),
        (0x400, pack_tables(operator)),
        (0xC00, pack_scale(operator, config)),
    ):
        image[at : at + block.size] = block
    addresses = ElementwiseAddresses(0x200, 0x200, 0x400, 0xC00, 0xE00)
    text = describe_elementwise(operator, 256, addresses, last=True)
    image[: len(text)] = np.frombuffer(text, np.uint8)
    outcome = EngineBench(config).run(image, 0)
    assert outcome.done
    # a + a in codes of twice the scale is a itself.
    np.testing.assert_array_equal(outcome.memory[0xE00:0xF00].view(np.int8), codes)


# Maximum pooling in the lanes


def pooling(layer, clamp):
    """A network of one maximum pooling; the engine takes -128 as zero, so that pads never win."""
    how = Requantization(multiplier=1 << 30, shift=1, zero_point=-128, clamp=clamp)
    node = ConvNode(
        index=0,
        name="pool",
        operator="MAX_POOL_2D",
        inputs=(0,),
        outputs=(1,),
        layer=layer,
        weights=np.ones(layer.weight_shape, np.int8),
        bias=None,
        requantization=how,
        maximum=True,
    )
    tensors = {
        0: NetworkTensor(0, "x", layer.input_shape, "int8", 0.1, 5),
        1: NetworkTensor(1, "y", layer.output_shape, "int8", 0.1, 5),
    }
    return Network("pool", "tflm", tensors, (node,), (0,), (1,))


def pool_layer(height, width, channels, kernel, stride, pads=(0, 0, 0, 0)):
    return ConvLayer(
        height,
        width,
        channels,
        channels,
        kernel,
        stride,
        pads=pads,
        groups=channels,
        in_zero_point=-128,
        has_bias=False,
    )


POOLS = [
    (pool_layer(6, 6, 4, (2, 2), (2, 2)), (-128, 127)),
    (pool_layer(5, 7, 3, (3, 3), (2, 2), (1, 1, 1, 1)), (-128, 127)),
    (pool_layer(4, 9, 11, (2, 3), (1, 2), (0, 1, 1, 0)), (-40, 60)),
    (pool_layer(7, 3, 1, (3, 2), (2, 1), (1, 0, 0, 1)), (-128, 127)),  # one channel: not depthwise
    (pool_layer(3, 3, 9, (3, 3), (1, 1), (2, 2, 2, 2)), (-128, 127)),  # corners see one code
]


@pytest.mark.parametrize(
    ("lanes", "pools"), [((1, 1), (0, 1, 3)), ((4, 3), (0, 1, 2, 4)), ((3, 5), (2, 3, 4))]
)
def test_maximum_pooling(lanes, pools):
    """Each layer on two of the engines, the largest not on the slowest."""
    config = engine(lanes, 4, units=("max_pool",))
    bench = EngineBench(config)
    rng = np.random.default_rng(lanes)
    for layer, clamp in (POOLS[index] for index in pools):
        program = compile_network(pooling(layer, clamp), config)
        for low in (True, False):
            # Codes down to -128 alone show whether pads and unused lanes stay out of it.
            x = rng.integers(-128, -120 if low else 128, layer.input_shape).astype(np.int8)
            image = program.image.copy()
            at = program.addresses[0]
            image[at : at + x.size] = x.view(np.uint8).ravel()
            outcome = bench.run(image, program.steps[0].program_address, stalls=0.0 if low else 0.3)
            assert outcome.done
            expected = golden.max_pool(x, layer.kernel, layer.stride, layer.pads, clamp)
            at = program.addresses[1]
            found = outcome.memory[at : at + expected.size].view(np.int8)
            np.testing.assert_array_equal(found.reshape(expected.shape), expected)
            if low:
                assert outcome.counters["cycles"] == program.cycles


def test_sums_and_maxima_on_one_engine():
    """The lanes turn to sums again after a maximum."""
    config = engine((4, 3), 8, units=("max_pool", "elementwise"))
    pool = pool_layer(6, 6, 4, (2, 2), (2, 2))
    layer = ConvLayer(3, 3, 4, 5, (3, 3), pads=(1, 1, 1, 1), in_zero_point=5)
    rng = np.random.default_rng(3)
    weights = rng.integers(-128, 128, layer.weight_shape).astype(np.int8)
    bias = rng.integers(-999, 999, 5).astype(np.int32)
    how = Requantization(multiplier=1_500_000_000, shift=-8, zero_point=-7)
    nodes = (
        *pooling(pool, (-128, 127)).nodes,
        ConvNode(
            index=1,
            name="conv",
            operator="CONV_2D",
            inputs=(1,),
            outputs=(2,),
            layer=layer,
            weights=weights,
            bias=bias,
            requantization=how,
        ),
    )
    tensors = {
        index: NetworkTensor(index, str(index), shape, "int8", 0.1, 5)
        for index, shape in enumerate((pool.input_shape, layer.input_shape, layer.output_shape))
    }
    program = compile_network(Network("both", "tflm", tensors, nodes, (0,), (2,)), config)
    x = rng.integers(-128, 128, pool.input_shape).astype(np.int8)
    image = program.image.copy()
    at = program.addresses[0]
    image[at : at + x.size] = x.view(np.uint8).ravel()
    bench = EngineBench(config)
    largest = golden.max_pool(x, (2, 2), (2, 2))
    expected = golden.golden_layer(layer, largest, weights, bias, how)
    for _ in range(2):  # once more from the start, with what the first run left in the lanes
        outcome = bench.run(image, program.steps[0].program_address)
        at = program.addresses[2]
        found = outcome.memory[at : at + expected.size].view(np.int8)
        np.testing.assert_array_equal(found.reshape(expected.shape), expected)
        assert outcome.counters["cycles"] == program.cycles
