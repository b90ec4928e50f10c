"""Makes the small language model of the catalogue readable for vLLM: GGUF to a folder in the form of transformers.

    .venv-vllm/bin/python tests/make_vllm_model.py

Runs in the environment of `envs/vllm-cpu.txt` and writes to `models/` in that environment (270 MB, half a minute); does
nothing when the folder is there. The 4-bit weights become bfloat16 without a change of value beyond rounding.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "workflow"))

from triagesim.fetch import fetch

NAME = "smollm2-135m-instruct"
FOLDER = Path(sys.prefix) / "models" / NAME


def main() -> None:
    """Convert, whole or not at all."""
    if FOLDER.is_dir():
        return
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    gguf = fetch(NAME)
    part = FOLDER.with_name(f".{NAME}")
    shutil.rmtree(part, ignore_errors=True)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
    )
    model.save_pretrained(part)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(part)
    part.rename(FOLDER)


if __name__ == "__main__":
    main()
