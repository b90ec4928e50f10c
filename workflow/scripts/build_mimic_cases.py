"""Builds cases from the tables of MIMIC-IV-ED: `cases.jsonl`, with cases.csv, rejects.csv and flow.json beside it.

In the workflow `data.source` names such a folder itself; this is for use by hand. The cases stay under MIMIC's
agreement, as the tables do.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.build import build_cases
from triagesim.config import Select
from triagesim.console import command
from triagesim.mimic import provenance_of


def main() -> None:
    """Parse the arguments and build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--ed-dir",
        type=Path,
        required=True,
        help="the folder with triage, edstays, diagnosis, medrecon and, for ages, patients (.csv or .csv.gz)",
    )
    parser.add_argument("--out-dir", type=Path, required=True)
    parser.add_argument("--stays", type=Path, help="a file with one stay_id a line: only these")
    parser.add_argument("--per-acuity", type=int, metavar="N", help="at most so many of each level")
    parser.add_argument("--sample", type=int, metavar="N", help="at most so many in all")
    parser.add_argument("--drop-ambulance-level1", action="store_true", help="leave out level 1 by ambulance")
    parser.add_argument("--seed", type=int, default=0, help="of the two draws")
    args = parser.parse_args()
    select = Select(
        stays=args.stays.read_text(encoding="utf-8-sig").split() if args.stays else None,
        per_acuity=args.per_acuity,
        sample=args.sample,
        drop_ambulance_level1=args.drop_ambulance_level1,
        seed=args.seed,
    )
    provenance = provenance_of(args.ed_dir, "mimic_iv_ed_demo")
    flow = build_cases(args.ed_dir, args.out_dir, shards=None, provenance=provenance, select=select)
    print(json.dumps(flow, indent=2))


if __name__ == "__main__":
    command(main)
