"""What a job in which models run asks of the machine: cores, GPUs, memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from triagesim.config import LlamaCppModel, Model, VllmModel

#: Cores and memory of a job whose model runs in it: for each GPU of vLLM, in all for llama.cpp. Weights pass through
#: the host's memory on their way to the device.
CPUS_PER_GPU = 8
MB_PER_GPU = 64_000
CPUS_OF_LLAMACPP = 8
MB_OF_LLAMACPP = 8_000
#: Of a job that only asks: the calls of 64 episodes in flight and the answers of a shard of some thousand.
MB_OF_OTHERS = 4_000


class Demand(NamedTuple):
    """What a job needs.

    Attributes:
        cpus, gpus: how many.
        memory_mb: megabytes of the host's memory.
    """

    cpus: int = 1
    gpus: int = 0
    memory_mb: int = MB_OF_OTHERS


def demand(seated: Iterable[Model]) -> Demand:
    """What a job needs by the models of its roles; a hosted one or the baseline needs a core.

    The vLLM models of a job share its GPUs, so that it needs as many as the largest of them is spread over.
    """
    models: list[Model] = []
    for model in seated:  # a model in two roles is loaded once
        if model not in models:
            models.append(model)
    gpus = max((_devices(model) for model in models if isinstance(model, VllmModel)), default=0)
    small = [model.threads or CPUS_OF_LLAMACPP for model in models if isinstance(model, LlamaCppModel)]
    return Demand(
        cpus=max(1, CPUS_PER_GPU * gpus, *small),
        gpus=gpus,
        memory_mb=max(MB_OF_OTHERS, MB_PER_GPU * gpus + MB_OF_LLAMACPP * len(small)),
    )


def _devices(model: VllmModel) -> int:
    options = model.model_extra or {}
    spread = (options.get(f"{kind}_parallel_size") or 1 for kind in ("tensor", "pipeline", "data"))
    product = 1
    for size in spread:
        product *= int(size)
    return product
