"""The area of an engine from the areas of others: fitted logic, exact memories and multipliers."""

import itertools
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from haloconv.flow.explore.fit import Floats, non_negative_fit
from haloconv.flow.explore.memories import memory_primitives
from haloconv.flow.explore.terms import GROUPS, group_of, quantities, term_names
from haloconv.flow.sweep.jobs import sources
from haloconv.flow.synthesis.area import Area
from haloconv.planner.config import EngineConfig

__all__ = ["AreaModel", "Errors", "Sample", "read_samples", "samples_of"]

FITTED = ("luts", "carries", "ffs", "lut_rams")
"""What is fitted, group by group."""
LEAST = 6
"""Samples without which nothing is fitted."""
RIDGE = 1e-4
DSP_TERMS = ("lanes", "q", "one", "q serial", "q fp32", "q elementwise", "steps", "pm", "pr")

FOLDER = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Sample:
    """A synthesised engine: its area, and that of each group of blocks."""

    config: EngineConfig
    area: Area
    groups: Mapping[str, Area]


@dataclass(frozen=True)
class Errors:
    """How far predictions of points are off that the model had not seen.

    Attributes
    ----------
    points : int
    median, worst : dict of str to float
        Relative error of each fitted quantity, and of ``lut4``.
    exact : dict of str to int
        Points whose ``dsps`` and ``block_rams`` were right.
    """

    points: int
    median: Mapping[str, float]
    worst: Mapping[str, float]
    exact: Mapping[str, int]

    def sentence(self) -> str:
        """Return the errors in words."""
        if not self.points:
            return "too few points to leave any out of its fit, so its error is not known"
        return (
            f"on {self.points} points left out of its fit, LUT + 2 carry is off by "
            f"{100 * self.median['lut4']:.1f} % in the median and {100 * self.worst['lut4']:.1f} % "
            f"at worst, FF by {100 * self.median['ffs']:.1f} and {100 * self.worst['ffs']:.1f} %; "
            f"DSP are right in {self.exact['dsps']}, block RAM in {self.exact['block_rams']}"
        )


def samples_of(record: Mapping[str, Any]) -> list[Sample]:
    """Return the samples of a sweep's results or of training data (docs/sweep.md).

    Raises
    ------
    ValueError
        If it is neither.
    """
    try:
        samples = []
        for point in record["points"]:
            if point.get("area") is None or not point.get("blocks"):
                continue
            groups = dict.fromkeys(GROUPS, Area())
            for path, area in point["blocks"].items():
                groups[group_of(path)] += _area(area)
            config = EngineConfig.from_dict(point["config"])
            samples.append(Sample(config, _area(point["area"]), groups))
        return samples
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"there are no results of a sweep in it ({error!r})") from None


def _area(values: Mapping[str, int]) -> Area:
    return Area(**{name: count for name, count in values.items() if name != "lut4"})


def read_samples(path: Path, family: str) -> list[Sample]:
    """Return the samples of a ``sweep.json``, or of a sweep's folder.

    Raises
    ------
    OSError
        If there is no such file.
    ValueError
        If it holds something else, or another family.
    """
    path = path / "sweep.json" if path.is_dir() else path
    record = _read(path)
    found = record["family"]
    if found != family:
        raise ValueError(f"{path} is a sweep of {found}, but the device is of {family}")
    try:
        return samples_of(record)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _read(path: Path) -> Mapping[str, Any]:
    """Return the record in a file, or in that of a sweep's folder."""
    path = path / "sweep.json" if path.is_dir() else path
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(record["family"], str):
            return record
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{path} is no sweep.json; make one with haloconv sweep")


class AreaModel:
    """Answers in milliseconds what synthesis answers in a minute.

    Logic is fitted group by group: non-negative least squares of relative errors over terms that a
    group's logic grows with (:mod:`haloconv.flow.explore.terms`). Multipliers are a sum of such
    terms with exact coefficients. Block RAMs follow from the shapes of the memories, but for those
    memories that are the same in every engine.

    Parameters
    ----------
    family : str
    samples : sequence of Sample
    stale : bool
        Some of the samples came from other sources of the generator.

    Raises
    ------
    ValueError
        If there are too few samples, or the family's memories are not described.
    """

    def __init__(self, family: str, samples: Sequence[Sample], *, stale: bool = False) -> None:
        if len(samples) < LEAST:
            raise ValueError(
                f"the area model of {family} needs at least {LEAST} synthesised engines, not "
                f"{len(samples)}; sweep some and name the folder with --training"
            )
        self.family, self.samples, self.stale = family, tuple(samples), stale
        memory_primitives(EngineConfig(), family)  # refuses other families
        self._scales: dict[tuple[str, str], Floats] = {}
        for group in GROUPS:
            terms = np.array([quantities(s.config, term_names(group)) for s in samples])
            for name in FITTED:
                totals = np.array([max(getattr(s.area, name), 1) for s in samples], float)
                values = np.array([getattr(s.groups[group], name) for s in samples], float)
                # Relative to the whole, as it is the whole that is to be right.
                weighted = terms / totals[:, None]
                self._scales[group, name] = non_negative_fit(weighted, values / totals, ridge=RIDGE)
        self._dsps = self._fit_dsps()
        # Memories that are the same in every engine.
        rest = [s.area.block_rams - memory_primitives(s.config, family) for s in samples]
        self._fixed_blocks = round(statistics.median(rest))

    @classmethod
    def trained(cls, family: str, more: Iterable[Path] = ()) -> "AreaModel":
        """Return the model of a family, with haloconv's own training data and more sweeps.

        Raises
        ------
        OSError, ValueError
            For files that do not hold up, or a family without data.
        """
        own = FOLDER / f"{family}.json"
        paths = [*([own] if own.is_file() else []), *more]
        samples = [sample for path in paths for sample in read_samples(path, family)]
        # A later sweep of the same engine replaces an earlier one.
        unique = {sample.config.digest: sample for sample in samples}
        made = {_read(path).get("sources") for path in paths}
        return cls(family, list(unique.values()), stale=made != {sources("synthesis")})

    def _fit_dsps(self) -> Floats:
        terms = np.array([quantities(s.config, DSP_TERMS) for s in self.samples])
        counts = np.array([s.area.dsps for s in self.samples], float)
        # The fewest terms that explain every count, with a whole number of multipliers for each.
        for size in range(1, 5):
            for chosen in itertools.combinations(range(len(DSP_TERMS)), size):
                columns = terms[:, chosen]
                found = np.linalg.lstsq(columns, counts, rcond=None)[0].round()
                if (columns @ found == counts).all():
                    exact = np.zeros(len(DSP_TERMS))
                    exact[list(chosen)] = found
                    return exact
        return non_negative_fit(terms, counts)

    def groups(self, config: EngineConfig) -> dict[str, Area]:
        """Return the logic of each group of blocks; memories and multipliers are not among it."""
        return {
            group: Area(
                **{
                    name: round(
                        float(
                            np.dot(quantities(config, term_names(group)), self._scales[group, name])
                        )
                    )
                    for name in FITTED
                }
            )
            for group in GROUPS
        }

    def predict(self, config: EngineConfig) -> Area:
        """Return the area of an engine."""
        logic = sum(self.groups(config).values(), Area())
        dsps = round(float(np.dot(quantities(config, DSP_TERMS), self._dsps)))
        blocks = self._fixed_blocks + memory_primitives(config, self.family)
        return logic + Area(dsps=dsps, block_rams=blocks)

    @cached_property
    def errors(self) -> Errors:
        """How far the model is off on each sample when it is fitted without it and its like.

        Samples are left out in turns, a tenth at a time, so that each is predicted once by a model
        that had not seen it.
        """
        count = len(self.samples)
        # Of few samples one at a time, as each of them counts.
        folds = min(10, count) if count >= 2 * LEAST else count
        relative: dict[str, list[float]] = {name: [] for name in (*FITTED, "lut4")}
        exact = {"dsps": 0, "block_rams": 0}
        points = 0
        for fold in range(folds):
            rest = [s for place, s in enumerate(self.samples) if place % folds != fold]
            left = [s for place, s in enumerate(self.samples) if place % folds == fold]
            if len(rest) < LEAST:
                break
            model = AreaModel(self.family, rest)
            for sample in left:
                points += 1
                found = model.predict(sample.config)
                for name, errors in relative.items():
                    true = getattr(sample.area, name)
                    errors.append(abs(getattr(found, name) - true) / max(true, 1))
                for name in exact:
                    exact[name] += getattr(found, name) == getattr(sample.area, name)
        return Errors(
            points,
            {name: statistics.median(values) for name, values in relative.items() if values},
            {name: max(values) for name, values in relative.items() if values},
            exact,
        )
