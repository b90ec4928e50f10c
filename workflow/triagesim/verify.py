"""Says whether a run's results are what its stored episodes give: each derived file is made anew and compared.

What is made anew isn't listed here: every rule of the workflow runs again, in a folder beside the results, but for
those in `SOURCES`, whose files are only linked there, one by one. So a rule that is added is verified from then on.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from triagesim.artifact import Episode
from triagesim.cases import explain
from triagesim.config import Config
from triagesim.errors import InputError, TriageSimError
from triagesim.jsonl import read_json, read_lines, read_table, sha256_of, write_json
from triagesim.provenance import CRATE, recorded_hashes
from triagesim.resources import RESOURCES, is_there
from triagesim.stored import read_model
from triagesim.temporaries import folder_beside

#: The rules whose files aren't derived from the episodes, with what they write below results.
SOURCES = {
    "fetch": ("models",),
    "build_cases": ("cases", "NOTICE.txt"),
    "generate_personas": ("personas",),
    "resolve_pairing": ("pairings",),
    "simulate": ("episodes", "usage"),
    "resolve_judge": (),
    "judge_completion": ("completion",),
    "render_audio": ("audio",),
    "audio_manifests": (),
    "transcribe": (),
    "manifest": (),
}
# Of the rules that `shards_per_job` makes of one.
_NUMBER = re.compile(r"_\d+$")
#: What people bring, below results.
BROUGHT = ("review/returned",)
#: Rules that aren't part of `all`, with a file that tells whether somebody asked for them.
ON_DEMAND = {"review_kit": "review/form.html", "review": "review/agreement.csv"}
#: Written at the start of a run, from the configuration.
_CONFIG = "config.json"
#: What isn't compared: it holds no result.
_NOT_COMPARED = (_CONFIG, CRATE)


def main(arguments: list[str]) -> int:
    """The task `verify`; 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="triagesim verify", description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"), help="default: results")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="jobs at once; default: all cores")
    args = parser.parse_args(arguments)
    problems, checked = verify(args.results, cores=args.cores)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problem(s)" if problems else "all of it is what the episodes give", f"({checked})")
    return 1 if problems else 0


def verify(results: Path, *, cores: int = 1) -> tuple[list[str], str]:
    """What is wrong with a run's results, one text each, and what was looked at.

    Raises:
        InputError: there is no finished run, or no Snakemake to make anything anew with.
    """
    if not (results / _CONFIG).is_file():
        raise InputError(f"{results}: holds no {_CONFIG}; name the results of a run that Snakemake made")
    config = read_model(results / _CONFIG, Config)
    problems = [*_altered(results), *_accounts(results)]
    episodes, wrong = _episodes(results, config)
    made, different = _derived(results, config, cores)
    crate = "recorded hashes" if (results / CRATE).exists() else f"no recorded hashes: {CRATE} isn't there"
    return [*problems, *wrong, *different], f"{episodes} episodes, {made} derived files, {crate}"


def _altered(results: Path) -> Iterator[str]:
    """The files that aren't what the crate recorded."""
    if not (results / CRATE).exists():
        return
    try:
        recorded = recorded_hashes(results)
    except (ValueError, KeyError, TypeError):
        yield f"{results / CRATE}: can't be read as the record of a run; delete it and run snakemake"
        return
    for name, sha256 in recorded.items():
        path = results / name
        if not path.is_file():
            yield f"{path}: is recorded in {CRATE} and isn't there"
        elif sha256_of(path) != sha256:
            yield f"{path}: isn't the file that {CRATE} recorded"


def _accounts(results: Path) -> Iterator[str]:
    """Whether the rows of the source add up to the cases that were simulated."""
    folder = results / "cases"
    flow = read_json(folder / "flow.json")
    if flow["read"] != flow["accepted"] + flow["rejected"]:
        counts = f"{flow['read']} rows read aren't {flow['accepted']} accepted + {flow['rejected']} rejected"
        yield f"{folder / 'flow.json'}: {counts}"
    for name, count in (("rejects.csv", flow["rejected"]), ("cases.csv", flow["selected"])):
        if (found := sum(1 for _ in read_table(folder / name))) != count:
            yield f"{folder / name}: {found} rows, but flow.json counts {count}"


def _episodes(results: Path, config: Config) -> tuple[int, list[str]]:
    """How many episodes the run has, and what is wrong with them, each and all together."""
    cases = [row["case_id"] for row in read_table(results / "cases" / "cases.csv")]
    problems: list[str] = []
    count = 0
    for pairing in config.expanded():
        limit = pairing.cases.limit
        wanted = {f"{case}-{k}" for case in cases[:limit] for k in range(config.simulation.episodes_per_case)}
        found: Counter[str] = Counter()
        for number in range(1, config.shards + 1):
            path = results / "episodes" / pairing.slug / f"{number}-of-{config.shards}.jsonl"
            if not path.is_file():
                problems.append(f"{path}: isn't there")
                continue
            try:
                for line, row in read_lines(path):
                    found[str(row.get("episode_id"))] += 1
                    problems += _against_schema(row, f"{path}, line {line}")
            except TriageSimError as error:
                problems.append(str(error))
        count += found.total()
        if found != Counter(wanted):
            odd = sorted((found - Counter(wanted)) + (Counter(wanted) - found))
            problems.append(
                f"{results / 'episodes' / pairing.slug}: {found.total()} episodes don't add up to the {len(wanted)} of "
                f"the cases: {', '.join(odd[:5])}{' …' if len(odd) > 5 else ''}"
            )
    return count, problems


def _against_schema(row: dict[str, Any], where: str) -> Iterator[str]:
    try:
        Episode.model_validate(row)
    except ValidationError as error:
        yield f"{where}: {explain(error, 'episode')}"


def _derived(results: Path, config: Config, cores: int) -> tuple[int, list[str]]:
    """How many files were made anew, and which of them differ."""
    run = results.absolute().parent
    with folder_beside(run / "verify") as scratch:
        _link(results.absolute(), scratch, config)
        failed = _run_rules(results, scratch, cores)
        if failed:
            return 0, [failed]
        problems, made = [], 0
        for path in sorted((scratch / "results").rglob("*")):
            inside = path.relative_to(scratch / "results")
            if path.is_symlink() or not path.is_file() or str(inside) in _NOT_COMPARED or _hidden(inside):
                continue
            made += 1
            own = results / inside
            if not own.is_file():
                problems.append(f"{own}: isn't there, and follows from the episodes")
            elif not filecmp.cmp(own, path, shallow=False):
                problems.append(f"{own}: isn't what the episodes give ({_where(own, path)})")
        return made, problems


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _where(own: Path, made: Path) -> str:
    """Where two files begin to differ."""
    with own.open("rb") as one, made.open("rb") as other:
        for number, (mine, theirs) in enumerate(zip(one, other, strict=False), 1):
            if mine != theirs:
                return f"first in line {number}"
    return "one of them ends early"


def _link(results: Path, scratch: Path, config: Config) -> None:
    """Lay out a run's folder with the sources linked and nothing derived."""
    own = {"results", "logs", config.journal.dir}
    for path in results.parent.iterdir():
        if path.name not in own and not path.name.startswith("."):
            (scratch / path.name).symlink_to(path)
    linked = [name for names in SOURCES.values() for name in names]
    for name in (*linked, *BROUGHT):
        if (results / name).is_dir():
            for path in (results / name).rglob("*"):
                if path.is_file():
                    _link_file(path, scratch / "results" / path.relative_to(results))
        elif (results / name).exists():
            _link_file(results / name, scratch / "results" / name)
    # `all` wants the crate, which can't be made anew; it may be missing.
    (scratch / "results").mkdir(exist_ok=True)
    (scratch / "results" / CRATE).touch()
    # A journal of its own, so that no mark of a live run is touched; pseudonyms need the run's salt.
    journal = scratch / ".journal"
    journal.mkdir()
    salt = results.parent / config.journal.dir / "_salt"
    if salt.exists():
        (journal / "_salt").symlink_to(salt)
    stated = {**config.model_dump(mode="json"), "journal": {"dir": ".journal"}}
    write_json(scratch / ".config.json", _as_seen_from(results.parent, scratch, stated))


def _as_seen_from(run: Path, scratch: Path, value: Any) -> Any:
    """A configuration whose paths lead from the scratch folder where they lead from the run's, also out of it."""
    if isinstance(value, dict):
        return {key: _as_seen_from(run, scratch, part) for key, part in value.items()}
    if isinstance(value, list):
        return [_as_seen_from(run, scratch, part) for part in value]
    return str(run / value) if isinstance(value, str) and is_there(run / value) > is_there(scratch / value) else value


def _link_file(path: Path, place: Path) -> None:
    """Link one file, with its time, in a folder of the scratch's own: what a rule replaces there is only the link."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(path)
    times = path.stat()
    os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns), follow_symlinks=False)


def _run_rules(results: Path, scratch: Path, cores: int) -> str | None:
    """Make everything derived in the scratch folder; why it can't be made, if so."""
    snakefile = RESOURCES.parent / "Snakefile"
    if not snakefile.is_file() or find_spec("snakemake") is None:
        raise InputError(
            "verify needs the repository's workflow and Snakemake: pip install -e '.[workflow]' in a checkout"
        )
    base = [sys.executable, "-m", "snakemake", "--snakefile", str(snakefile), "--directory", str(scratch)]
    base += ["--configfile", str(scratch / ".config.json"), "--replace-workflow-config", "--cores", str(cores)]
    listed = _snakemake([*base, "--list-rules"])
    rules = [name for name in listed.stdout.split() if name.isidentifier() and _NUMBER.sub("", name) not in SOURCES]
    targets = ["all", *(rule for rule, file in ON_DEMAND.items() if (results / file).exists())]
    done = _snakemake([*base, *targets, "--rerun-triggers", "mtime", "--allowed-rules", *rules])
    if done.returncode == 0:
        return None
    logs = [path.read_text(encoding="utf-8") for path in sorted((scratch / "logs").rglob("*.log"))]
    said = [line for log in [*logs, done.stderr] for line in log.splitlines() if line.startswith(("error:", "Missing"))]
    why = "; ".join(dict.fromkeys(said)) or done.stderr.strip()[-2000:]
    return f"{results}: the derived files can't be made anew: {why}"


def _snakemake(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "--list-rules" in command:
        raise InputError(f"the workflow can't be read: {done.stderr.strip()[-2000:]}")
    return done
