"""The command `triagesim`: bare options simulate; a first word (`status`, `show`, `verify`) is another task."""

from __future__ import annotations

import argparse
import json
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from triagesim.console import command
from triagesim.errors import InputError
from triagesim.governance import OPEN, Provenance, attributions

if TYPE_CHECKING:
    from triagesim.drive import Plan

TASKS = {
    "status": "what is done, skipped, failed and spent, from the journals",
    "show": "print a dialogue",
    "verify": "whether a run's results are what its episodes give",
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
    if task == "verify":
        from triagesim.verify import main as verify

        command(lambda: verify(arguments[1:]))
    if arguments and not arguments[0].startswith(("-", "@")):
        command(lambda: _refuse(arguments[0]))
    command(lambda: simulate(arguments))


def _refuse(word: str) -> NoReturn:
    """Say which tasks there are: bare options take no word."""
    from triagesim.config import nearest

    raise InputError(f"unknown task {word!r}{nearest(word, list(TASKS))}; there are {', '.join(TASKS)}, or options")


def simulate(arguments: list[str]) -> int:
    """Simulate from the command's options; 1 only when every episode failed."""
    args = parser().parse_args(arguments)
    from triagesim.drive import append_episodes, stoppable
    from triagesim.score_rows import read_scored
    from triagesim.scoring import summarize

    with stoppable(_seconds_left(args)):
        plan = make_plan(args)
        failed = append_episodes(plan)
        print(json.dumps(summarize(read_scored(plan.out)), indent=2))
        for line in attributions(plan.provenances):
            print(line, file=sys.stderr)
    return 1 if failed and len(failed) == len(plan.jobs) else 0


def parser() -> argparse.ArgumentParser:
    """The options; a file of them, one a line, is given as @FILE."""
    tasks = "\n".join(f"  triagesim {name:<8} {text}" for name, text in TASKS.items())
    made = _ArgumentParser(
        prog="triagesim",
        description="Simulate triage dialogues and append each episode to --out as it finishes.",
        epilog=f"other tasks:\n{tasks}\n\nModels: vllm:<path or hub id> | openrouter:<model id> | openai:<model id> "
        "(base_url in --model-args)\n        | llamacpp:<name or .gguf> | agenda\n@FILE reads options from a file, one "
        "a line. The same command again goes on where the last one stopped.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        fromfile_prefix_chars="@",
        allow_abbrev=False,
    )
    _add_models(made.add_argument_group("models"))
    _add_data(made.add_argument_group("data"))
    _add_rules(made.add_argument_group("episodes"))
    _add_work(made.add_argument_group("work (changes no result)"))
    return made


def _add_models(models: argparse._ArgumentGroup) -> None:
    models.add_argument("--model", metavar="SPEC", help="one model for every role")
    models.add_argument("--nurse-model", metavar="SPEC")
    models.add_argument("--patient-model", metavar="SPEC")
    models.add_argument("--judge-model", metavar="SPEC", help="turns the dialogue master on")
    models.add_argument("--prompts", choices=("full", "compact"), default="full", help="compact suits small models")
    models.add_argument("--sampling", type=_object, default={}, metavar="JSON", help='{"nurse": {"temperature": 0.7}}')
    models.add_argument(
        "--model-args", type=_object, default={}, metavar="JSON", help="options of every model, or by its SPEC"
    )
    models.add_argument("--vllm-args", type=_object, default={}, metavar="JSON", help="options of every vLLM engine")
    models.add_argument("--openrouter-args", type=_object, default={}, metavar="JSON", help="options of OpenRouter")


def _add_data(data: argparse._ArgumentGroup) -> None:
    data.add_argument(
        "--cases", type=Path, required=True, metavar="FILE", help=".jsonl, .json, .csv, or a MIMIC-IV-ED folder"
    )
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


def _add_rules(rules: argparse._ArgumentGroup) -> None:
    rules.add_argument(
        "--algorithm", choices=("esi", "ats"), help="the scale for all cases; each case's own unless given"
    )
    rules.add_argument("--episodes-per-case", type=_positive, default=1, metavar="N")
    rules.add_argument("--max-turns", type=_positive, default=12, metavar="N", help="questions the nurse may ask (12)")
    rules.add_argument("--min-questions", type=_whole, default=3, metavar="N", help="questions before it may end (3)")
    rules.add_argument(
        "--max-regenerations",
        type=_whole,
        default=1,
        metavar="N",
        help="times a rejected line goes back before the dialogue master writes it (1)",
    )
    rules.add_argument("--appearance", action="store_true", help="tell the nurse what can be seen; needs --judge-model")
    rules.add_argument("--belief-state", action="store_true", help="show the nurse its own last assessment")
    rules.add_argument("--feedback", action="store_true", help="tell the nurse how near its level is (leaks the label)")
    rules.add_argument("--seed", type=int, default=0, metavar="N")


def _add_work(work: argparse._ArgumentGroup) -> None:
    work.add_argument("--concurrency", type=_positive, default=64, metavar="N", help="episodes in flight (64)")
    work.add_argument(
        "--speculation",
        choices=("auto", "off", "reading", "full"),
        default="auto",
        help="how far calls run ahead of the checks",
    )
    work.add_argument("--budget-usd", type=_amount, metavar="X", help="stop once the answers cost so many US dollars")
    work.add_argument("--budget-tokens", type=_positive, metavar="N", help="stop once they took so many tokens")
    work.add_argument("--time-limit", type=_seconds, metavar="[H:]MM:SS|S", help="stop by then, with exit code 75")
    work.add_argument("--stop-at", type=_moment, metavar="TIME", help="likewise, as 2026-05-01T18:30 or Unix seconds")


def make_plan(args: argparse.Namespace) -> Plan:
    """The driver's plan from the options."""
    from triagesim.calls import Seat
    from triagesim.cases import load_cases
    from triagesim.config import Features
    from triagesim.drive import Plan
    from triagesim.episode import Setup
    from triagesim.limits import Limits
    from triagesim.requests import ROLES

    cases = load_cases(args.cases)[: args.limit]
    if not cases:
        raise InputError(f"{args.cases}: holds no case")
    if args.provenance:
        strict = [case.provenance is not None and case.provenance not in OPEN for case in cases]
        cases = [
            case if keeps else case.model_copy(update={"provenance": args.provenance})
            for case, keeps in zip(cases, strict, strict=True)
        ]
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
        max_regenerations=args.max_regenerations,
        seed=args.seed,
        features=Features(appearance=args.appearance, belief_state=args.belief_state, feedback=args.feedback),
        speculation=args.speculation,
    )
    jobs = [(case, number) for case in cases for number in range(args.episodes_per_case)]
    journal = args.out.with_name(f"{args.out.name}.journal")
    limits = Limits(journal, args.budget_usd, args.budget_tokens)
    return Plan(jobs, setup, args.out, journal, args.out.name, args.concurrency, limits=limits)


def _backends(args: argparse.Namespace) -> dict[Any, Any]:
    """A backend by role; roles with the same specification share one."""
    from triagesim.backends import load_backend, share_devices

    specs = {"nurse": args.nurse_model or args.model, "patient": args.patient_model or args.model}
    for role, spec in specs.items():
        if not spec:
            raise InputError(f"no model for the {role}: give --model, or --{role}-model")
    if args.judge_model:
        specs |= {"judge": args.judge_model, "script": args.judge_model}
    elif args.appearance:
        raise InputError("--appearance needs a dialogue master: give --judge-model")
    own = {"vllm": args.vllm_args, "openrouter": args.openrouter_args}
    by_spec = {spec: args.model_args.pop(spec, {}) for spec in dict.fromkeys(specs.values())}
    if odd := [spec for spec, options in by_spec.items() if not isinstance(options, dict)]:
        raise InputError(f'--model-args: {odd[0]} needs an object of options, as in {{"timeout": 60}}')
    made = {
        spec: load_backend(spec, **args.model_args, **own.get(spec.partition(":")[0], {}), **options)
        for spec, options in by_spec.items()
    }
    share_devices(made.values())
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
    from triagesim.jsonl import OddValue, loads

    try:
        value = loads(text, own=True)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"not JSON ({error.msg} at column {error.colno})") from None
    except OddValue as error:
        raise argparse.ArgumentTypeError(f"holds {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("expected a JSON object in braces")
    return value


#: A timer takes no more than this: some three years, in seconds.
_LONGEST = 1e8


def _seconds_left(args: argparse.Namespace) -> float | None:
    """Seconds until the earlier of --time-limit and --stop-at."""
    ends = [args.time_limit, None if args.stop_at is None else args.stop_at - time.time()]
    return min((min(left, _LONGEST) for left in ends if left is not None), default=None)


def _seconds(text: str) -> int:
    parts = text.split(":")
    if not all(part.isdecimal() for part in parts) or len(parts) > 3:
        raise argparse.ArgumentTypeError(f"expected seconds, MM:SS or H:MM:SS, found {text!r}")
    return sum(int(part) * 60**power for power, part in enumerate(reversed(parts)))


def _moment(text: str) -> float:
    try:
        return float(text) if text.isdecimal() else datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a time as 2026-05-01T18:30, found {text!r}") from None


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = 0
    if not 0 < amount < float("inf"):
        raise argparse.ArgumentTypeError(f"expected an amount above 0, found {text!r}")
    return amount


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
