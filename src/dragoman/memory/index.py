"""Find the nearest of many states: all are compared up to EXACT, and beyond that those of the nearest cells.

faiss searches, the fastest of the libraries that were tried (docs/notes/memory.md), but what is on the disk are plain
arrays: a stranger's file is never read by it.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from dragoman.errors import UsageError
from dragoman.memory.states import Floats, Ints

EXACT = 8_000  # states, in one cell
PROBES = 8  # cells that are searched
STATES_OF_CELL = 256  # at most, on average
TRAINED_ON = 64  # states for each cell
QUERIES = 200  # for which the recall is measured
FAR = 1e30  # the squared distance of what is not there
KEY = np.float16  # what keys are kept in


@cache
def faiss() -> Any:
    """Return the library. Raise UsageError where it is not installed."""
    try:
        import faiss as library
    except ImportError:
        raise UsageError("a memory needs faiss: pip install 'dragoman[memory]'") from None
    # For more queries than this it would multiply matrices, and a distance would depend on the other queries.
    library.cvar.distance_compute_blas_threshold = 2**31 - 1
    return library


@dataclass(frozen=True)
class Index:
    """States in the order of their cells."""

    keys: Any  # (N, r), KEY
    centres: Floats  # (C, r): of the cells
    starts: Ints  # (C + 1,): where the states of each cell begin

    @classmethod
    def from_keys(cls, keys: Floats) -> tuple["Index", Ints]:
        """Return an index of keys (N, r), and in which order (N,) it has them."""
        count, size = keys.shape
        cells = max(1, -(-count // STATES_OF_CELL)) if count > EXACT else 1
        centres, cell = np.zeros((1, size), np.float32), np.zeros(count, np.int64)
        if cells > 1:
            library = faiss()
            kmeans = library.Kmeans(size, cells, niter=5, seed=1, max_points_per_centroid=TRAINED_ON)
            kmeans.train(keys)
            centres = kmeans.centroids
            cell = kmeans.index.search(keys, 1)[1][:, 0]
        order = np.argsort(cell, kind="stable")
        starts = np.concatenate([[0], np.bincount(cell, minlength=cells).cumsum()])
        return cls(keys[order].astype(KEY), centres, starts), order

    @cached_property
    def searcher(self) -> Any:
        """The index of the library, with a copy of the keys."""
        library = faiss()
        cells, size = self.centres.shape
        quantizer = library.IndexFlatL2(size)
        quantizer.add(self.centres)
        kind = library.ScalarQuantizer.QT_fp16
        index = library.IndexIVFScalarQuantizer(quantizer, size, cells, kind, library.METRIC_L2, False)
        index.is_trained = True
        numbers = np.arange(len(self.keys))
        for cell, (start, end) in enumerate(zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)):
            if end > start:
                codes = np.ascontiguousarray(self.keys[start:end]).view(np.uint8)
                ids = numbers[start:end]
                index.invlists.add_entries(cell, end - start, library.swig_ptr(ids), library.swig_ptr(codes))
        index.ntotal = len(self.keys)
        index.nprobe = min(PROBES, cells)
        return index

    def measure_recall(self, count: int = 16) -> float:
        """Return the share of the nearest `count` states of some of them that a search finds."""
        if len(self.centres) == 1:
            return 1.0
        queries = self.keys[:: -(-len(self.keys) // QUERIES)].astype(np.float32)
        _, likely = self.search(queries, count)
        self.searcher.nprobe, before = len(self.centres), self.searcher.nprobe
        _, nearest = self.search(queries, count)
        self.searcher.nprobe = before
        return float(np.mean([len(set(some) & set(all)) / count for some, all in zip(likely, nearest, strict=True)]))

    def search(self, queries: Floats, count: int) -> tuple[Floats, Ints]:
        """Return the squared distances (R, count) of the states nearest to queries (R, r), and their numbers.

        The nearest is the first; where there are not so many, distances are FAR and numbers -1.
        """
        faiss().omp_set_num_threads(1)  # of this thread: searches share the cores
        distances, numbers = self.searcher.search(queries, count)
        return np.minimum(distances, FAR, out=distances), numbers
