"""Writes pools of personas: every one there is, a sample, or a user's own after checking (rule generate_personas).

Beside `<role>.jsonl` it writes `<role>.weights.csv`: how common each level should be by the sampling, and is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.console import command
from triagesim.jsonl import write_jsonl, write_table

if TYPE_CHECKING:
    from triagesim.personas import Role


def rows(role: Role, options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """The pool of one role as it was asked for."""
    # A registry that somebody has edited is read when this is imported; a fault in it is reported like any other.
    from triagesim.personas import PERSONAS, generate, load_personas

    if options.file:
        return [persona.model_dump(exclude_none=True) for persona in load_personas(options.file, PERSONAS[role])]
    return generate(role, options.sampling, options.n, options.seed)


def main() -> None:
    """Parse the arguments and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out-dir", type=Path, metavar="DIR", help="write DIR/patient.jsonl and DIR/nurse.jsonl")
    parser.add_argument("--role", choices=("patient", "nurse"), help="write the pool of this role only, to --out")
    parser.add_argument("--out", type=Path, metavar="POOL.jsonl", help="where to write the pool of --role")
    parser.add_argument(
        "--sampling",
        choices=("all", "uniform", "prevalence", "covering"),
        default="all",
        help="all there are; uniform: n different ones, each as likely; prevalence: n as common as research has "
        "counted; covering: a few that have every pair of levels. Default: %(default)s",
    )
    parser.add_argument("--n", type=int, help="how many personas of a role, for uniform and prevalence")
    parser.add_argument("--seed", type=int, default=0, help="of the sample; default: %(default)s")
    parser.add_argument("--file", type=Path, help="check and copy these personas (.jsonl or .yaml), don't generate any")
    options = parser.parse_args()
    if bool(options.out_dir) == bool(options.role and options.out) or bool(options.role) != bool(options.out):
        parser.error("give either --out-dir, or --role and --out")
    if options.file and not options.role:
        parser.error("--file needs --role and --out: it holds personas of one role")
    pools: dict[Role, Path] = {options.role: options.out}
    if options.out_dir:
        pools = {"patient": options.out_dir / "patient.jsonl", "nurse": options.out_dir / "nurse.jsonl"}
    for role, path in pools.items():
        write_pool(role, path, options)


def write_pool(role: Role, path: Path, options: argparse.Namespace) -> None:
    """Write the pool of one role and the weights of its mix, and print them."""
    from triagesim.personas import registry
    from triagesim.sampling import WEIGHTS_HEADER, Mix

    mix = Mix(registry(role), None if options.file else options.sampling)
    write_jsonl(path, mix.watch(rows(role, options)))
    weights = path.with_suffix(".weights.csv")
    write_table(weights, WEIGHTS_HEADER, mix.table())
    print(f"{path}: {mix.personas:,} personas; weights and shares of their levels: {weights}")


if __name__ == "__main__":
    command(main)
