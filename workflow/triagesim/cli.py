"""The command `triagesim`: bare options simulate; a first word (`status`, `show`) is another task."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from triagesim.console import command
from triagesim.errors import InputError
from triagesim.governance import Provenance

if TYPE_CHECKING:
    from triagesim.drive import Plan

TASKS = {
    "status": "what is done, skipped, failed and spent, from the journals",
    "show": "print a dialogue",
}


def main() -> None:
    """The entry point."""
    arguments = sys.argv[1:]
    task = arguments[0] if arguments and arguments[0] in TASKS else None
    if task == "status":
        from triagesim.status import main as status

        command(lambda: status(arguments[1:]))
    if task == "show":
        from triagesim.show import main as show

        command(lambda: show(arguments[1:]))
    command(lambda: simulate(arguments))


def simulate(arguments: list[str]) -> int:
    """Simulate from the command's options; 1 only when every episode failed."""
    args = parser().parse_args(arguments)
    from triagesim.drive import append_episodes, stoppable
    from triagesim.jsonl import read_lines
    from triagesim.scoring import summarize

    with stoppable():
        plan = make_plan(args)
        failed = append_episodes(plan)
        print(json.dumps(summarize(episode for _, episode in read_lines(plan.out)), indent=2))
    return 1 if failed and len(failed) == len(plan.jobs) else 0


def parser() -> argparse.ArgumentParser:
    """The options; a file of them, one a line, is given as @FILE."""
    tasks = "\n".join(f"  triagesim {name:<8} {text}" for name, text in TASKS.items())
    made = _ArgumentParser(
        prog="triagesim",
        description="Simulate triage dialogues and append each episode to --out as it finishes.",
        epilog=f"other tasks:\n{tasks}\n\nModels: agenda | llamacpp:<name or .gguf>. @FILE reads options from a file, "
        "one a line.\nThe same command again goes on where the last one stopped.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        fromfile_prefix_chars="@",
        allow_abbrev=False,
    )
    models = made.add_argument_group("models")
    models.add_argument("--model", metavar="SPEC", help="one model for every role")
    models.add_argument("--nurse-model", metavar="SPEC")
    models.add_argument("--patient-model", metavar="SPEC")
    models.add_argument("--prompts", choices=("full", "compact"), default="full", help="compact suits small models")
    models.add_argument("--sampling", type=_object, default={}, metavar="JSON", help='{"nurse": {"temperature": 0.7}}')
    models.add_argument("--model-args", type=_object, default={}, metavar="JSON", help="options of every backend")
    data = made.add_argument_group("data")
    data.add_argument("--cases", type=Path, required=True, metavar="FILE", help=".jsonl, .json or .csv")
    data.add_argument(
        "--nurse-personas", type=Path, metavar="FILE", help=".jsonl or .yaml; all of the registry unless given"
    )
    data.add_argument("--patient-personas", type=Path, metavar="FILE")
    data.add_argument(
        "--provenance", choices=get_args(Provenance), help="what kind of data --cases is, for cases that don't say it"
    )
    data.add_argument("--limit", type=_positive, metavar="N", help="only the first N cases")
    data.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help=".jsonl; answers are kept in FILE.journal/"
    )
    rules = made.add_argument_group("episodes")
    rules.add_argument(
        "--algorithm", choices=("esi", "ats"), help="the scale for all cases; each case's own unless given"
    )
    rules.add_argument("--episodes-per-case", type=_positive, default=1, metavar="N")
    rules.add_argument("--max-turns", type=_positive, default=12, metavar="N", help="questions the nurse may ask (12)")
    rules.add_argument("--min-questions", type=_whole, default=3, metavar="N", help="questions before it may end (3)")
    rules.add_argument("--seed", type=int, default=0, metavar="N")
    rules.add_argument("--concurrency", type=_positive, default=64, metavar="N", help="episodes in flight (64)")
    return made


def make_plan(args: argparse.Namespace) -> Plan:
    """The driver's plan from the options."""
    from triagesim.calls import Seat
    from triagesim.cases import load_cases
    from triagesim.drive import Plan
    from triagesim.episode import Setup
    from triagesim.requests import ROLES

    cases = load_cases(args.cases)[: args.limit]
    if not cases:
        raise InputError(f"{args.cases}: holds no case")
    if args.provenance:
        cases = [case.model_copy(update={"provenance": case.provenance or args.provenance}) for case in cases]
    backends = _backends(args)
    if unknown := set(args.sampling) - set(ROLES):
        raise InputError(f"--sampling: unknown role {', '.join(sorted(unknown))}; expected {', '.join(ROLES)}")
    if odd := [role for role, options in args.sampling.items() if not isinstance(options, dict)]:
        raise InputError(f'--sampling: {odd[0]} needs an object of options, as in {{"temperature": 0.7}}')
    setup = Setup(
        {role: Seat(backend, args.prompts, args.sampling.get(role, {})) for role, backend in backends.items()},
        _pool("nurse", args.nurse_personas),
        _pool("patient", args.patient_personas),
        algorithm=args.algorithm,
        max_turns=args.max_turns,
        min_questions=args.min_questions,
        seed=args.seed,
    )
    jobs = [(case, number) for case in cases for number in range(args.episodes_per_case)]
    return Plan(jobs, setup, args.out, args.out.with_name(f"{args.out.name}.journal"), args.out.name, args.concurrency)


def _backends(args: argparse.Namespace) -> dict[Any, Any]:
    """A backend by role; roles with the same specification share one."""
    from triagesim.backends import load_backend

    specs = {"nurse": args.nurse_model or args.model, "patient": args.patient_model or args.model}
    for role, spec in specs.items():
        if not spec:
            raise InputError(f"no model for the {role}: give --model, or --{role}-model")
    made = {spec: load_backend(spec, **args.model_args) for spec in dict.fromkeys(specs.values())}
    return {role: made[spec] for role, spec in specs.items()}


def _pool(role: Any, path: Path | None) -> Any:
    from triagesim.personas import PERSONAS, Pool, generate, load_personas

    model = PERSONAS[role]
    if path is None:
        return Pool((model.model_validate(levels) for levels in generate(role, "uniform", 500)), role)
    return Pool(load_personas(path, model), role)


class _ArgumentParser(argparse.ArgumentParser):
    def convert_arg_line_to_args(self, arg_line: str) -> list[str]:
        """One argument a line, or an option and its value; blank lines and those that begin with # are passed over."""
        line = arg_line.strip()
        if not line or line.startswith("#"):
            return []
        return line.split(maxsplit=1) if line.startswith("-") else [line]


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"not JSON ({error.msg} at column {error.colno})") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("expected a JSON object in braces")
    return value


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 on, found {text!r}")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, found {text!r}")
    return int(text)


if __name__ == "__main__":
    main()
