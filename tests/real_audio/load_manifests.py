"""Loads the manifests of a spoken corpus with the libraries that its users have: Lhotse, meeteval, pyannote, datasets.

Run by `tests/test_manifests.py` under the Python of an environment that has them: `load_manifests.py FOLDER`, where
FOLDER is `results/audio`. What each library found is printed as one JSON object.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"


def by_lhotse(folder: Path) -> dict[str, Any]:
    from lhotse import CutSet, RecordingSet, SupervisionSet
    from lhotse.qa import validate_recordings_and_supervisions

    manifests = folder / "manifests"
    recordings = RecordingSet.from_jsonl(manifests / "recordings.jsonl.gz").with_path_prefix(folder)
    supervisions = SupervisionSet.from_jsonl(manifests / "supervisions.jsonl.gz")
    validate_recordings_and_supervisions(recordings, supervisions, read_data=True)
    cuts = CutSet.from_manifests(recordings=recordings, supervisions=supervisions)
    turns = cuts.trim_to_supervisions(keep_overlapping=False)
    loud = [float(abs(turn.load_audio()).max()) for turn in turns]
    return {
        "recordings": len(recordings),
        "supervisions": len(supervisions),
        "speakers": sorted({segment.speaker for segment in supervisions}),
        "quietest": min(loud),
        "shortest": min(turn.duration for turn in turns),
        "rttm": sum(1 for _ in SupervisionSet.from_rttm(manifests / "dialogues.rttm")),
    }


def by_meeteval(folder: Path) -> dict[str, Any]:
    import meeteval

    manifests = folder / "manifests"
    stm = meeteval.io.load(manifests / "dialogues.stm")
    rttm = meeteval.io.load(manifests / "dialogues.rttm")
    error = meeteval.wer.cpwer(stm, stm)
    words = manifests / "dialogues.ctm"
    total = sum(error.values(), start=meeteval.wer.ErrorRate.zero())
    return {
        "stm": len(stm),
        "rttm": len(rttm),
        "speakers": sorted({segment.speaker_id for segment in stm}),
        "cpwer_with_itself": total.error_rate,
        "words": total.length,
        # Empty where the engine gives no word times.
        "ctm": len(meeteval.io.load(words)) if words.stat().st_size else 0,
    }


def by_pyannote(folder: Path) -> dict[str, Any]:
    from pyannote.database.util import load_rttm

    loaded = load_rttm(folder / "manifests" / "dialogues.rttm")
    return {
        "files": sorted(loaded),
        "segments": sum(len(annotation) for annotation in loaded.values()),
        "speakers": sorted({label for annotation in loaded.values() for label in annotation.labels()}),
    }


def by_datasets(folder: Path) -> dict[str, Any]:
    from datasets import load_dataset

    loaded = load_dataset("audiofolder", data_dir=str(folder / "dialogues"), cache_dir=str(folder / "cache"))["train"]
    first = loaded[0]
    samples = first["audio"].get_all_samples()
    return {
        "rows": len(loaded),
        "columns": sorted(loaded.column_names),
        "shape": list(samples.data.shape),
        "rate": samples.sample_rate,
        "duration_s": first["duration_s"],
        "said": [line["text"] for line in first["lines"]],
    }


if __name__ == "__main__":
    where = Path(sys.argv[1]).absolute()
    checks = {"lhotse": by_lhotse, "meeteval": by_meeteval, "pyannote": by_pyannote, "datasets": by_datasets}
    print(json.dumps({name: check(where) for name, check in checks.items()}))
