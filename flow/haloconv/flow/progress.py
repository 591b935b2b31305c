"""What a command is doing, on stderr, while it takes long enough to wonder."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from haloconv.flow.report import error_console

__all__ = ["progress"]

Step = Callable[..., None]


@contextmanager
def progress() -> Iterator[Step]:
    """Give a function that shows a step: ``step(text, done=None, total=None)``.

    On a terminal a line with spinner, bar and clock, gone at the end. Elsewhere nothing, so that
    logs hold results only.
    """
    screen = error_console()
    if not screen.is_terminal:
        yield lambda text, done=None, total=None: None
        return
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        console=screen,
        transient=True,
    ) as bar:
        task = bar.add_task("", total=None)

        def step(text: str, done: int | None = None, total: int | None = None) -> None:
            bar.update(task, description=text, completed=done or 0, total=total)

        yield step
