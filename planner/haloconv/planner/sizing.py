"""The split of a storage budget over the buffers of an engine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from haloconv.planner.candidates import OBJECTIVES
from haloconv.planner.config import EngineConfig
from haloconv.planner.errors import PlanError
from haloconv.planner.layer import ConvLayer
from haloconv.planner.search import search_tiles
from haloconv.planner.tile import Tile, tile_words
from haloconv.planner.traffic import is_channelwise
from haloconv.planner.validate import check_int

__all__ = ["size_engine"]

SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85)
"""Shares of the double buffers that the first round of splits gives to the weights."""
SUM_SHARES = (0.0, 0.08, 0.2, 0.4)
"""Shares of the budget that the first round gives to partial sums."""
ROUNDS = 12
"""Most rounds of moving bytes between the buffers of the best split."""


@dataclass(frozen=True)
class _Split:
    """Words of the weight buffer and the bank, and groups of biases; the input has the rest."""

    weight: int
    sums: int
    groups: int


Cost = tuple[float, float, float]


class _Sizing:
    """A budget to be split over the buffers of an engine for a list of layers."""

    def __init__(
        self,
        layers: Sequence[ConvLayer],
        budget: int,
        base: EngineConfig,
        objective: str,
        latency: int,
    ) -> None:
        self.budget, self.base = budget, base
        self.objective, self.latency = objective, latency
        # Layers that differ in name or zero point alone cost the same.
        counts: dict[ConvLayer, int] = {}
        for layer in layers:
            key = replace(layer, name="", in_zero_point=0)
            counts[key] = counts.get(key, 0) + 1
        self.layers = list(counts)
        self.counts = counts
        self.input_unit = base.split_lanes * base.word_bytes
        self.weight_unit = base.lanes
        self.sum_unit = 4 * base.results_per_cycle
        self.group_unit = 4 * base.out_lanes
        self.most = self._most()
        self.seen: dict[_Split, Cost | None] = {}

    def _most(self) -> dict[str, int]:
        """Return the words and groups beyond which no layer gains."""
        most = {"input": 1, "weight": 1, "sums": 0, "groups": 1}
        for layer in self.layers:
            depthwise = is_channelwise(layer)
            whole = Tile(
                layer.out_height,
                layer.out_width,
                1 if depthwise else layer.group_in_channels,
                layer.out_channels if depthwise else layer.group_out_channels,
            )
            for mode in ("depthwise",) if depthwise else ("channel", "row"):
                words = tile_words(layer, self.base, whole, mode)
                steps = -(-whole.out_channels // self.base.out_lanes) * self.base.group_steps
                most["input"] = max(most["input"], words.input)
                most["weight"] = max(most["weight"], words.weight)
                most["groups"] = max(most["groups"], words.groups)
                if whole.in_channels > 1:
                    most["sums"] = max(most["sums"], whole.height * whole.width * steps)
        most["input"] = min(most["input"], (1 << 24) // self.input_unit)
        most["weight"] = min(most["weight"], (1 << 24) // self.weight_unit)
        most["sums"] = min(most["sums"], (1 << 24) // self.sum_unit)
        most["groups"] = min(most["groups"], (1 << 18) // self.group_unit)
        return most

    def least(self) -> tuple[int, _Split]:
        """Return the smallest budget that runs every layer, and its split.

        One output of one channel in channel mode needs least of every buffer, either with single
        input channels and one word of sums or with all input channels and none.
        """
        options: list[tuple[int, _Split]] = []
        for split in (True, False):
            words = [
                tile_words(
                    layer,
                    self.base,
                    Tile(1, 1, 1 if split or is_channelwise(layer) else layer.group_in_channels, 1),
                    "depthwise" if is_channelwise(layer) else "channel",
                )
                for layer in self.layers
            ]
            entry = _Split(max(w.weight for w in words), max(w.psum for w in words), 1)
            fixed = self._bytes(entry)
            options.append((fixed + 2 * self.input_unit * max(w.input for w in words), entry))
        return min(options, key=lambda option: option[0])

    def _bytes(self, split: _Split) -> int:
        """Return the bytes of everything but the input buffer."""
        return (
            2 * self.weight_unit * split.weight
            + self.sum_unit * split.sums
            + self.group_unit * split.groups
        )

    def config(self, split: _Split) -> EngineConfig | None:
        """Return the engine of a split, or None if nothing is left for the input."""
        words = (self.budget - self._bytes(split)) // (2 * self.input_unit)
        if words < 1 or split.weight < 1 or split.sums < 0 or split.groups < 1:
            return None
        return replace(
            self.base,
            input_bytes=self.input_unit * min(words, self.most["input"]),
            weight_bytes=self.weight_unit * split.weight,
            psum_bytes=self.sum_unit * split.sums,
            bias_bytes=self.group_unit * split.groups,
        )

    def clipped(self, weight: float, sums: float, groups: int) -> _Split:
        """Return a split within what the layers can use."""
        most = self.most
        return _Split(
            max(1, min(int(weight), most["weight"])),
            max(0, min(int(sums), most["sums"])),
            max(1, min(groups, most["groups"])),
        )

    def floors(self) -> None:
        """Work out what each layer costs if every buffer had the whole budget."""
        relaxed = replace(
            self.base,
            input_bytes=self.input_unit * self.most["input"],
            weight_bytes=self.weight_unit * self.most["weight"],
            psum_bytes=self.sum_unit * self.most["sums"],
            bias_bytes=self.group_unit * self.most["groups"],
        )
        whole = self.budget // 2
        relaxed = replace(
            relaxed,
            input_bytes=min(relaxed.input_bytes, max(self.input_unit, whole)),
            weight_bytes=min(relaxed.weight_bytes, max(self.weight_unit, whole)),
            psum_bytes=min(relaxed.psum_bytes, self.budget),
            bias_bytes=min(relaxed.bias_bytes, max(self.group_unit, self.budget)),
        )
        self.floor = {
            layer: self._figures(layer, relaxed)[0] * self.counts[layer] for layer in self.layers
        }
        self.layers.sort(key=lambda layer: -self.floor[layer])

    def _figures(self, layer: ConvLayer, config: EngineConfig) -> tuple[int, int, int]:
        return search_tiles(layer, config, self.objective, self.latency).figures(self.objective)

    def cost(self, split: _Split, best: Cost | None) -> Cost | None:
        """Return the figures of a split summed over the layers; None where it is worse than best.

        Layers that suffered most in the split before come first, so that a poor one ends early.
        """
        if split in self.seen:
            return self.seen[split]
        config = self.config(split)
        total = [0.0, 0.0, 0.0]
        rest = sum(self.floor.values())
        gaps: dict[ConvLayer, float] = {}
        self.seen[split] = None
        if config is None:
            return None
        for layer in self.layers:
            try:
                figures = self._figures(layer, config)
            except PlanError:
                return None
            count = self.counts[layer]
            total = [t + count * figure for t, figure in zip(total, figures, strict=True)]
            rest -= self.floor[layer]
            gaps[layer] = count * figures[0] - self.floor[layer]
            if best is not None and total[0] + rest > best[0]:
                self.layers.sort(key=lambda x: -gaps.get(x, 0.0))
                return None
        self.seen[split] = (total[0], total[1], total[2])
        return self.seen[split]

    def best(self, start: _Split) -> _Split:
        """Return the best split that is found, coarse to fine, from one that works."""
        self.floors()
        first = self.cost(start, None)
        assert first is not None  # least() works
        chosen, least = start, first

        def better(split: _Split) -> Cost | None:
            cost = self.cost(split, least)
            # Of equal splits that which leaves most to the input: it may help the next move.
            if cost and (*cost, self._bytes(split)) < (*least, self._bytes(chosen)):
                return cost
            return None

        for split in self._coarse():
            if cost := better(split):
                chosen, least = split, cost
        step, ideal = 4, sum(self.floor.values())
        for _ in range(ROUNDS):
            before = chosen
            for split in self._moves(chosen, step):
                if cost := better(split):
                    chosen, least = split, cost
            if chosen == before:
                step *= 2
            if step > 32 or least[0] <= ideal:
                break
        return chosen

    def _coarse(self) -> list[_Split]:
        half = 2 * self.weight_unit
        splits: list[_Split] = []
        groups = [g for g in (1, 2, 4, 8, 16, 32) if g <= self.most["groups"]]
        wide = self.most["groups"]
        for count in sorted({groups[len(groups) // 2], min(groups[-1], wide)}):
            left = self.budget - self.group_unit * count
            for share_sums in SUM_SHARES:
                sums = left * share_sums
                for share in SHARES:
                    weight = (left - sums) * share / half
                    splits.append(self.clipped(weight, sums / self.sum_unit, count))
        return list(dict.fromkeys(splits))

    def _moves(self, at: _Split, step: int) -> list[_Split]:
        """Return splits that move a part of a buffer into or out of another."""
        weight = max(1, at.weight // step)
        sums = max(1, at.sums // step)
        # Bytes of one buffer in words of another; the input gives or takes the difference.
        trade = max(1, sums * self.sum_unit // (2 * self.weight_unit))
        moves = [
            (at.weight + weight, at.sums, at.groups),
            (at.weight - weight, at.sums, at.groups),
            (at.weight, at.sums + sums, at.groups),
            (at.weight, at.sums - sums, at.groups),
            (at.weight + trade, at.sums - sums, at.groups),
            (at.weight - trade, at.sums + sums, at.groups),
            (at.weight, at.sums, at.groups + 1),
            (at.weight, at.sums, at.groups - 1),
            (at.weight, at.sums, at.groups * 2),
            (at.weight, at.sums, at.groups // 2),
            (at.weight, 0, at.groups),
        ]
        splits = [self.clipped(*move) for move in moves]
        return [split for split in dict.fromkeys(splits) if split != at]

    def trimmed(self, config: EngineConfig) -> EngineConfig:
        """Return the engine without the words that no plan uses."""
        uses = [
            search_tiles(layer, config, self.objective, self.latency).storage.words
            for layer in self.layers
        ]
        words = [use for use in uses if use is not None]
        return replace(
            config,
            input_bytes=self.input_unit * max(use.input for use in words),
            weight_bytes=self.weight_unit * max(use.weight for use in words),
            psum_bytes=self.sum_unit * max(use.psum for use in words),
            bias_bytes=self.group_unit * max(use.groups for use in words),
        )


def size_engine(
    layers: ConvLayer | Sequence[ConvLayer],
    budget_bytes: int,
    *,
    out_lanes: int = 8,
    split_lanes: int = 8,
    bus_bytes: int = 8,
    latency: int = 16,
    objective: str = "cycles",
    **options: Any,
) -> EngineConfig:
    """Split a storage budget over the buffers of an engine, to suit a list of layers.

    Splits are tried coarse to fine; each is worth the sum over the layers of the objective, as
    :func:`~haloconv.planner.search.search_tiles` finds it. Words that none of the plans uses are
    not built.

    Parameters
    ----------
    layers : ConvLayer or sequence of ConvLayer
    budget_bytes : int
        Most bytes of :attr:`~haloconv.planner.config.EngineConfig.budget_bytes`.
    out_lanes, split_lanes, bus_bytes : int
        As in :class:`~haloconv.planner.config.EngineConfig`.
    latency : int
        Cycles from a read request to its first beat.
    objective : str
        Of :data:`~haloconv.planner.candidates.OBJECTIVES`.
    **options
        Other parameters of the configuration, buffers aside.

    Raises
    ------
    TypeError, ValueError
        For parameters that the configuration refuses, or no layers.
    PlanError
        If the budget is too small for the layers, with the smallest that works.
    """
    every = (layers,) if isinstance(layers, ConvLayer) else tuple(layers)
    if not every:
        raise ValueError("layers must hold at least one layer to size an engine for, not none")
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, not {objective!r}")
    budget = check_int("budget_bytes", budget_bytes, 1)
    for name in ("input_bytes", "weight_bytes", "psum_bytes", "bias_bytes"):
        if name in options:
            raise TypeError(f"{name} must be left to the budget, not {options[name]!r}")
    base = EngineConfig(
        out_lanes=out_lanes,
        split_lanes=split_lanes,
        bus_bytes=bus_bytes,
        input_bytes=1 << 24,
        weight_bytes=1 << 24,
        bias_bytes=1 << 18,
        **options,
    )
    sizing = _Sizing(every, budget, base, objective, latency)
    least, start = sizing.least()
    if budget < least:
        raise PlanError(
            f"a budget of {budget} bytes is too small for these layers on {out_lanes} x "
            f"{split_lanes} lanes; the smallest that works is {least}"
        )
    config = sizing.config(sizing.best(start))
    assert config is not None  # the split that it starts from works
    return sizing.trimmed(config)
