"""What the tests of one session share, and the order in which several workers take them."""

import gc
import os

import pytest

from haloconv.flow.tools import processors

from .support.synthesised import common_folder

# Elaboration makes millions of objects that stay: rare collections save a fifth of its time.
gc.set_threshold(100_000, 20, 50)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Count the processors that this process may use.

    xdist counts physical cores of the whole machine where psutil is there, as Dask brings it: too
    few on hyperthreads, and far too many in a container with a share of a large machine.
    """
    return processors()


@pytest.fixture(scope="session", autouse=True)
def simulators(tmp_path_factory: pytest.TempPathFactory):
    """Keep compiled simulators for the session and all its workers, none from before it."""
    with pytest.MonkeyPatch.context() as patch:
        if "HALOCONV_CACHE_DIR" not in os.environ:
            patch.setenv("HALOCONV_CACHE_DIR", str(common_folder(tmp_path_factory) / "cache"))
        yield


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each worker its share of slow tests first, so that none is left alone at the end.

    Workers begin with equal parts of the list, one after the other, and take from the ends of
    others' parts when theirs is done.
    """
    slow = [item for item in items if item.get_closest_marker("slow")]
    others = [item for item in items if not item.get_closest_marker("slow")]
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    ordered = []
    for worker in range(workers):
        first, last = (len(slow) * part // workers for part in (worker, worker + 1))
        size = len(items) * (worker + 1) // workers - len(ordered) - (last - first)
        ordered += slow[first:last] + others[: max(0, size)]
        others = others[max(0, size) :]
    items[:] = ordered + others
