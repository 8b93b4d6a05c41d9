"""The text: the source code of Python's own standard library, which is there wherever Python is."""

import sysconfig
from pathlib import Path

import numpy as np
import torch


class Text:
    """Batches of random excerpts; a rank takes its part of each.

    All ranks draw the same numbers, whatever their number, so a run that goes on with another world
    size goes on with the same batches. The drawing's state is the place in the data.
    """

    def __init__(self, seed, batch, context, rank, world_size):
        if batch % world_size:
            raise SystemExit(f"--batch {batch} is not shared out evenly over {world_size} ranks")
        library = Path(sysconfig.get_path("stdlib"))
        source = b"".join(path.read_bytes() for path in sorted(library.glob("*.py")))
        self.bytes = np.frombuffer(source, dtype=np.uint8)
        self.draw = np.random.default_rng(seed)
        self.batch, self.context = batch, context
        each = batch // world_size
        self.mine = slice(rank * each, (rank + 1) * each)

    def next(self):
        """This rank's part of the next batch."""
        starts = self.draw.integers(0, len(self.bytes) - self.context - 1, self.batch)[self.mine]
        excerpts = [self.bytes[start : start + self.context + 1] for start in starts]
        return torch.from_numpy(np.stack(excerpts)).long()

    def state_dict(self):
        """Where it is in the data."""
        return {"draw": self.draw.bit_generator.state}

    def load_state_dict(self, state):
        """Go on from there."""
        self.draw.bit_generator.state = state["draw"]
