"""Makes the digit classifier of this folder: trains, quantises and writes it.

Needs haloconv and scikit-learn, for the handwritten digits that it brings: ``load_digits``, 1797
images of 8x8 pixels from the UCI Machine Learning Repository (Optical Recognition of Handwritten
Digits, CC BY 4.0). Training is plain numpy, seeded, and takes less than a minute:

    pip install -e . scikit-learn
    python examples/digits/make_digits.py

It prints the accuracy on the images that were held out, as trained and as quantised, and writes
digits.tflite and a held-out image of each digit as .npy. Floating-point sums differ a little from
machine to machine, so another machine may write another model of about the same accuracy.
"""

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

HERE = Path(__file__).resolve().parent
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SEED = 3
EPOCHS = 200
BATCH = 32
HELD_OUT = 360
RATE = 1e-2
DECAY = 1e-4

Floats = npt.NDArray[np.float64]


def load() -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return images (N, 8, 8, 1) of 0..1 in steps of 1/255, and their digits."""
    from sklearn.datasets import load_digits

    data = load_digits()
    grey = np.rint(np.asarray(data.images) * 255 / 16)
    return grey[..., np.newaxis] / 255, np.asarray(data.target, np.int64)


# The network: two convolutions, their mean over the image, one fully connected layer.


@dataclass
class Convolution:
    """A 3x3 convolution with TFLite's SAME padding, and ReLU."""

    weights: Floats
    bias: Floats
    stride: int

    def patches(self, x: Floats) -> Floats:
        """Return what lies under the window: (N, rows, columns, 9 * channels)."""
        size = x.shape[1]
        out = -(-size // self.stride)
        total = max((out - 1) * self.stride + 3 - size, 0)
        pad = (total // 2, total - total // 2)
        x = np.pad(x, ((0, 0), pad, pad, (0, 0)))
        views = [
            x[:, r : r + (out - 1) * self.stride + 1 : self.stride, :][
                :, :, c : c + (out - 1) * self.stride + 1 : self.stride
            ]
            for r in range(3)
            for c in range(3)
        ]
        return np.concatenate(views, axis=-1)

    def forward(self, x: Floats) -> Floats:
        """Return the activations, and keep what the gradients need."""
        self.size, self.p = x.shape[1], self.patches(x)
        self.y = np.maximum(self.p @ self.weights + self.bias, 0)
        return self.y

    def backward(self, dy: Floats) -> tuple[list[Floats], Floats]:
        """Return the gradients of weights and bias, and that of the input."""
        dy = dy * (self.y > 0)
        flat = dy.reshape(-1, dy.shape[-1])
        gradients = [self.p.reshape(flat.shape[0], -1).T @ flat, flat.sum(axis=0)]
        dp = dy @ self.weights.T
        out, channels = dy.shape[1], dp.shape[-1] // 9
        total = max((out - 1) * self.stride + 3 - self.size, 0)
        reach = self.size + total
        dx = np.zeros((dy.shape[0], reach, reach, channels))
        for place in range(9):
            r, c = divmod(place, 3)
            stop = (out - 1) * self.stride + 1
            part = dp[..., place * channels : (place + 1) * channels]
            dx[:, r : r + stop : self.stride, c : c + stop : self.stride] += part
        before = total // 2
        return gradients, dx[:, before : before + self.size, before : before + self.size]


@dataclass
class Classifier:
    """The float network and its training."""

    first: Convolution
    second: Convolution
    weights: Floats
    bias: Floats
    moments: list[list[Floats]] = field(default_factory=list)
    steps: int = 0

    @property
    def parameters(self) -> list[Floats]:
        """All that is trained; changed in place."""
        return [
            self.first.weights, self.first.bias, self.second.weights, self.second.bias,
            self.weights, self.bias,
        ]  # fmt: skip

    def forward(self, x: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the activations of both convolutions, the means and the scores."""
        a = self.first.forward(x)
        b = self.second.forward(a)
        mean = b.mean(axis=(1, 2))
        return a, b, mean, mean @ self.weights + self.bias

    def train(self, x: Floats, digits: npt.NDArray[np.int64], rate: float) -> None:
        """Take one step of Adam against the cross entropy of a batch."""
        _, b, mean, scores = self.forward(x)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        shares[np.arange(len(x)), digits] -= 1
        d = shares / len(x)
        gradients = [mean.T @ d, d.sum(axis=0)]
        spread = (d @ self.weights.T)[:, np.newaxis, np.newaxis] / (b.shape[1] * b.shape[2])
        second, da = self.second.backward(np.broadcast_to(spread, b.shape))
        first, _ = self.first.backward(da)
        gradients = [*first, *second, *gradients]
        if not self.moments:
            self.moments = [[np.zeros_like(p), np.zeros_like(p)] for p in self.parameters]
        self.steps += 1
        for p, g, moment in zip(self.parameters, gradients, self.moments, strict=True):
            moment[0] += 0.1 * (g - moment[0])
            moment[1] += 0.001 * (g * g - moment[1])
            mean_g = moment[0] / (1 - 0.9**self.steps)
            mean_gg = moment[1] / (1 - 0.999**self.steps)
            p -= rate * (mean_g / (np.sqrt(mean_gg) + 1e-8) + DECAY * p)

    def accuracy(self, x: Floats, digits: npt.NDArray[np.int64]) -> float:
        """Return the share of images whose largest score is their digit's."""
        return float(np.mean(self.forward(x)[3].argmax(axis=1) == digits))


def trained(x: Floats, digits: npt.NDArray[np.int64]) -> Classifier:
    """Return a network trained on images and their digits."""
    rng = np.random.default_rng(SEED)
    net = Classifier(
        Convolution(rng.normal(0, np.sqrt(2 / 9), (9, 8)), np.zeros(8), 1),
        Convolution(rng.normal(0, np.sqrt(2 / 72), (72, 16)), np.zeros(16), 2),
        rng.normal(0, np.sqrt(1 / 16), (16, 10)),
        np.zeros(10),
    )
    for epoch in range(EPOCHS):
        rate = RATE * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
        order = rng.permutation(len(x))
        for start in range(0, len(x), BATCH):
            batch = order[start : start + BATCH]
            net.train(x[batch], digits[batch], rate)
    return net


# Quantisation: int8 codes, a weight scale for each output channel, int32 biases.


def activation_scale(values: Floats) -> float:
    """Return the scale of activations that start from zero, at code -128."""
    return float(np.float32(values.max() / 255))


def score_scale(values: Floats) -> float:
    """Return the scale of scores of either sign, with zero at code 0."""
    return float(np.float32(np.abs(values).max() / 127))


def quantised(weights: Floats, bias: Floats, in_scale: float) -> tuple[Any, Any, Any]:
    """Return weights as (channels out, inputs) int8, their scales, and the bias as int32."""
    scales = (np.abs(weights).max(axis=0) / 127).astype(np.float32)
    codes = np.clip(np.rint(weights / scales), -127, 127).astype(np.int8).T
    return codes, scales, np.rint(bias / (scales.astype(np.float64) * in_scale)).astype(np.int32)


def model_file(net: Classifier, x: Floats) -> bytes:
    """Return the network as a .tflite file; ``x`` are images to choose the scales by."""
    spec = importlib.util.spec_from_file_location(
        "tflite_builder", HERE.parents[1] / "tests" / "support" / "tflite_builder.py"
    )
    assert spec is not None and spec.loader is not None
    builder: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    tensor, operator = builder.T, builder.Op

    edges, shapes, mean, scores = net.forward(x)
    image_scale = float(np.float32(1 / 255))
    edge_scale, shape_scale, mean_scale = map(activation_scale, (edges, shapes, mean))
    tensors = [
        tensor((1, 8, 8, 1), (image_scale,), (-128,), name="image"),
        tensor((1, 8, 8, 8), (edge_scale,), (-128,), name="edges"),
        tensor((1, 4, 4, 16), (shape_scale,), (-128,), name="shapes"),
        tensor((1, 16), (mean_scale,), (-128,), name="mean"),
        tensor((1, 10), (score_scale(scores),), (0,), name="scores"),
        tensor((2,), None, data=np.array([1, 2], np.int32), name="axes"),
    ]

    def constants(
        name: str, shape: tuple[int, ...], weights: Floats, bias: Floats, in_scale: float
    ) -> tuple[int, int]:
        codes, scales, sums = quantised(weights, bias, in_scale)
        zeros = [0] * len(scales)
        data = np.ascontiguousarray(codes).reshape(shape)
        tensors.append(tensor(shape, scales, zeros, data=data, name=f"{name}/weights"))
        sum_scales = scales * np.float32(in_scale)
        tensors.append(tensor(sums.shape, sum_scales, zeros, data=sums, name=f"{name}/bias"))
        return len(tensors) - 2, len(tensors) - 1

    first, second = net.first, net.second
    parts = [
        constants("edges", (8, 3, 3, 1), first.weights, first.bias, image_scale),
        constants("shapes", (16, 3, 3, 8), second.weights, second.bias, edge_scale),
        constants("scores", (10, 16), net.weights, net.bias, mean_scale),
    ]
    relu = {"FusedActivationFunction": 1}
    operators = [
        operator("CONV_2D", (0, *parts[0]), (1,), relu),
        operator("CONV_2D", (1, *parts[1]), (2,), relu | {"StrideH": 2, "StrideW": 2}),
        operator("MEAN", (2, 5), (3,)),
        operator("FULLY_CONNECTED", (3, *parts[2]), (4,)),
    ]
    return builder.build(tensors, operators, description="digit classifier of haloconv")


def codes(x: Floats) -> npt.NDArray[np.int8]:
    """Return images as the model takes them: grey levels less 128."""
    return (np.rint(x * 255) - 128).astype(np.int8)


def quantised_accuracy(path: Path, x: Floats, digits: npt.NDArray[np.int64]) -> float:
    """Return the share of images that the written model gets right, by haloconv's numpy model."""
    from haloconv.planner.network_file import read_network
    from haloconv.sim.network_golden import golden_network

    network = read_network(path)
    right = 0
    for image, digit in zip(codes(x), digits, strict=True):
        scores = golden_network(network, [image[np.newaxis]])[network.outputs[0]]
        right += int(scores.argmax() == digit)
    return right / len(x)


def main() -> None:
    """Train, quantise, write, and say how good it is."""
    x, digits = load()
    order = np.random.default_rng(SEED).permutation(len(x))
    held, kept = order[:HELD_OUT], order[HELD_OUT:]
    net = trained(x[kept], digits[kept])
    path = HERE / "digits.tflite"
    path.write_bytes(model_file(net, x[kept]))
    for digit, name in enumerate(NAMES):
        sample = held[digits[held] == digit][0]
        np.save(HERE / f"{name}.npy", codes(x[sample : sample + 1]))
    print(f"trained on {len(kept)} images, {len(held)} held out")
    print(f"held-out images right, float: {100 * net.accuracy(x[held], digits[held]):.1f} %")
    right = quantised_accuracy(path, x[held], digits[held])
    print(f"held-out images right, int8:  {100 * right:.1f} %")


if __name__ == "__main__":
    main()
