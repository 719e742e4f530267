"""Write the numbers of a run for TensorBoard. Needs the extra `tensorboard`."""

from pathlib import Path
from typing import Any

from dragoman.errors import UsageError

FLUSH_EVERY = 10  # seconds


class TensorBoardWriter:
    """Write numbers for TensorBoard into `folder`. Raise UsageError where the package is missing."""

    def __init__(self, folder: Path):
        try:
            import tensorboardX
        except ImportError:
            raise UsageError("training.tensorboard needs a package: pip install 'dragoman[tensorboard]'") from None
        self.package, self.folder = tensorboardX, folder
        self.writer: Any = None

    def record(self, event: str, *, step: int, **values: Any) -> None:
        """Write the numbers among `values` as scalars 'event/name' at `step`; other values are skipped."""
        if self.writer is None:
            self.writer = self.package.SummaryWriter(
                str(self.folder),
                purge_step=step,  # hides what an interrupted session wrote from here on: it is done again
                filename_suffix=f".{step}",  # two sessions that begin in one second would share a file
                flush_secs=FLUSH_EVERY,
            )
        for name, value in values.items():
            if isinstance(value, int | float):
                self.writer.add_scalar(f"{event}/{name}", value, step)

    def close(self) -> None:
        """Close the file, if one was begun."""
        if self.writer is not None:
            self.writer.close()
