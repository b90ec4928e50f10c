"""Builds the shards of cases and the table of rejected rows from a source (rule build_cases)."""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.build import build_cases
from triagesim.config import Select
from triagesim.console import command


def main() -> None:
    """Parse the arguments and build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--source", type=Path, required=True, help="a .jsonl, .json or .csv of cases, or a folder of MIMIC-IV-ED"
    )
    parser.add_argument("--provenance", required=True, help="synthetic, mimic_iv_ed_demo, mimic_iv_ed, …")
    parser.add_argument("--scale", choices=("esi", "ats"), help="for cases that don't name theirs")
    parser.add_argument("--select", type=json.loads, default={}, help="data.select of the configuration, as JSON")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--out-dir", type=Path, required=True)
    parser.add_argument("--notice", type=Path, help="where the terms of the data go; in --out-dir unless given")
    args = parser.parse_args()
    select = Select.model_validate(args.select)
    flow = build_cases(
        args.source,
        args.out_dir,
        shards=args.shards,
        provenance=args.provenance,
        scale=args.scale,
        select=select,
        terms=args.notice,
    )
    print(json.dumps(flow, indent=2))


if __name__ == "__main__":
    command(main)
