"""Makes torchaudio fit a torch without CUDA, after `pip install -r envs/audio-cpu.txt`.

    .venv-audio/bin/python envs/cpu_torchaudio.py

The registry's torchaudio is built for CUDA, and its native libraries can't be loaded beside a torch for CPUs. Without
them it works in Python alone, and XTTS needs no more. Where torch has CUDA, nothing is touched.
"""

from importlib.util import find_spec
from pathlib import Path

import torch


def main() -> None:
    """Remove the native libraries where they can't be loaded, and say so."""
    spec = find_spec("torchaudio")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("error: torchaudio isn't installed; run pip install --no-deps -r envs/audio-cpu.txt first")
    if torch.version.cuda is not None:
        print("torch has CUDA: torchaudio stays as it is")
        return
    libraries = sorted(Path(spec.submodule_search_locations[0], "lib").glob("*.so"))
    for library in libraries:
        library.unlink()
    print(f"torch has no CUDA: {len(libraries)} native libraries of torchaudio were removed")


if __name__ == "__main__":
    main()
