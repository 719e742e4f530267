"""Choose what a search steps: C++, tensor operations, or the model itself."""

from dragoman.inference.incremental import IncrementalTransformer, can_step
from dragoman.inference.native import NativeTransformer, find_library, find_obstacle
from dragoman.inference.products import can_pack, pack_weights
from dragoman.model import Model, Seq2Seq


def prepare(model: Model, compute_type: str) -> Seq2Seq:
    """Return what a search steps: the first of `NativeTransformer`, `IncrementalTransformer` and the model that can.

    The model has packed weights then. compute_type: what matrices are multiplied in, as for `pack_weights`; UsageError
    is raised as there.
    """
    if can_pack(model) and can_step(model):
        library = find_library()
        if not isinstance(library, str) and find_obstacle(model, compute_type, library) is None:
            return NativeTransformer(model, compute_type, library)
        return IncrementalTransformer(model, compute_type)
    return pack_weights(model, compute_type)


def library_level(stepped: Seq2Seq) -> str | None:
    """Return the level of the library in which a model takes its steps; None where PyTorch computes them."""
    return stepped.library.level if isinstance(stepped, NativeTransformer) else None
