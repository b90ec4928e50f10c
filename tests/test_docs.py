"""The documentation says what the code does: keys, defaults, snippets, errors, paths, the citation."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from triagesim.artifact import Episode
from triagesim.cases import Case
from triagesim.cli import parser
from triagesim.config import BACKENDS, RUNTIME_OPTIONS, Config, Model, check_config
from triagesim.drive import OUT_OF_TIME, TooManyErrors
from triagesim.errors import InputError, Kind, StopRun
from triagesim.judging import LineCheck, NurseLineCheck
from triagesim.personas import NursePersona
from triagesim.resources import RESOURCES

ROOT = RESOURCES.parent
GUIDE = (ROOT / "config/README.md").read_text(encoding="utf-8")
PAGES = [
    *("README.md", "CONTRIBUTING.md", "config/README.md", "benchmarks/README.md"),
    *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").glob("*.md"))),
]
FOLDERS = ("benchmarks", "config", "docs", "envs", "profiles", "resources", "tests", "workflow")

CODE = re.compile(r"`([^`\n]+)`")


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a language in a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


SNIPPETS = blocks("config/README.md", "yaml")
# The README's run in tests/test_readme.py.
OTHERS = [text for page in PAGES if page not in ("README.md", "config/README.md") for text in blocks(page, "yaml")]


def tables(text: str, first: str) -> Iterator[list[str]]:
    """The cells of every row of the tables whose first column is headed `first`."""
    inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            inside = False
        elif cells[0] == first:
            inside = True
        elif inside and not set(cells[0]) <= set("-: "):
            yield cells


def leaves(annotation: Any, path: str) -> Iterator[tuple[str, FieldInfo]]:
    """The keys below an annotation that hold a value, with their fields; an entry of a list adds nothing to a path."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated or origin is list:
        yield from leaves(inner[0], path)
    elif origin in (Union, types.UnionType):
        for one in inner:
            yield from leaves(one, path)
    elif origin is dict:
        yield from leaves(inner[1], f"{path}.<name>")
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            below = f"{path}.{name}".lstrip(".")
            yield from list(leaves(field.annotation, below)) or [(below, field)]


def default_of(field: FieldInfo) -> Any:
    return "required" if field.is_required() else field.get_default(call_default_factory=True)


def keys_of_configuration() -> dict[str, list[Any]]:
    """The defaults of every key, one for each kind of entry that has it."""
    found: dict[str, list[Any]] = {}
    for path, field in leaves(Config, ""):
        found.setdefault(path, []).append(default_of(field))
    return found


def documented_keys() -> dict[str, str]:
    """What stands as the default of each key."""
    found: dict[str, str] = {}
    for key, default, *_ in tables(GUIDE, "Key"):
        for name in CODE.findall(key):
            assert name not in found, f"{name} has two rows"
            found[name] = default
    return found


def laid_over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """As Snakemake lays one configuration over another: mappings are merged, all else is replaced."""
    merged = dict(base)
    for key, value in top.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = laid_over(merged[key], value) if both else value
    return merged


def test_every_configuration_key_is_explained_and_no_other() -> None:
    assert documented_keys().keys() == keys_of_configuration().keys()


def test_the_stated_defaults_are_those_of_the_code() -> None:
    known = keys_of_configuration()
    stated = {key: [yaml.safe_load(text.strip("`"))] * len(known[key]) for key, text in documented_keys().items()}
    assert stated == known


def test_every_key_says_what_a_change_reruns() -> None:
    words = [cells[0] for cells in tables(GUIDE, "Word")]
    assert words
    for cells in tables(GUIDE, "Key"):
        assert len(cells) == 4, cells
        assert cells[3] == "–" or any(word in cells[3] for word in words), cells


def test_every_field_of_a_case_is_explained_and_no_other() -> None:
    stated = [name for cells in tables(GUIDE, "Field") for name in CODE.findall(cells[0])]
    assert sorted(stated) == sorted(Case.model_fields)


@pytest.mark.parametrize("text", [*SNIPPETS, *OTHERS])
def test_a_snippet_is_a_configuration_alone_or_over_the_shipped_one(text: str) -> None:
    value = yaml.safe_load(text)
    if isinstance(value, list):
        assert [NursePersona.model_validate(row) for row in value]
        return
    shipped = yaml.safe_load((ROOT / "config/config.yaml").read_text(encoding="utf-8"))
    whole = {"data", "models", "pairings"} <= value.keys()
    config = check_config(value if whole else laid_over(shipped, value)).model_dump(exclude_unset=True)
    assert set(value) <= set(config)


def test_there_are_snippets_of_each_kind() -> None:
    kinds = {type(yaml.safe_load(text)) for text in SNIPPETS}
    assert kinds == {dict, list}
    assert any({"data", "models", "pairings"} <= yaml.safe_load(text).keys() for text in SNIPPETS if text[0] != "-")


def test_the_sweep_makes_the_pairings_that_are_named() -> None:
    text = GUIDE.partition("### A sweep")[2].partition("###")[0]
    shipped = yaml.safe_load((ROOT / "config/config.yaml").read_text(encoding="utf-8"))
    snippet = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    made = [pairing.slug for pairing in check_config(laid_over(shipped, snippet)).expanded()]
    assert made == CODE.findall(text.rpartition("This makes")[2])


def test_the_case_that_is_shown_is_one() -> None:
    shown = re.findall(r"^```json\n(.*?)\n```$", GUIDE, re.DOTALL | re.MULTILINE)
    assert [Case.model_validate_json(text).why_not() for text in shown] == [None]


def test_every_quoted_error_stands_in_the_code() -> None:
    files = [path for folder in ("workflow", "profiles") for path in sorted((ROOT / folder).rglob("*.py"))]
    code = "".join(path.read_text(encoding="utf-8") for path in files)
    joined = re.sub(r'"\s*\n\s*f?"', "", code)
    quoted = [error for cells in tables(GUIDE, "Error") for error in CODE.findall(cells[0])]
    assert quoted
    pieces = [piece for error in quoted for piece in error.split("…")]
    assert [piece for piece in pieces if piece.strip() not in joined] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {word for code in CODE.findall(text) for word in code.split() if word.startswith(FOLDERS) and "/" in word}
    plain = {path for path in named if not set("<>{}*…") & set(path) and path.split("/")[0] in FOLDERS}
    assert sorted(path for path in plain if not (ROOT / path).exists()) == []
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert [link for link in links if link and not (ROOT / page).parent.joinpath(link).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_an_option_of_a_command_that_a_page_shows_is_one_of_its_program(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    for program, options in re.findall(r"python3? ((?:workflow/scripts|benchmarks|tests)/\S+\.py)([^`\n#]*)", text):
        shared = "benchmarks/measuring.py" if program.startswith("benchmarks/") else program
        code = "".join((ROOT / path).read_text(encoding="utf-8") for path in {program, shared})
        named = [option for option in re.findall(r"--[\w-]+", options) if option != "--help"]
        assert [option for option in named if f'"{option}"' not in code] == [], program


def test_every_name_that_a_recipe_sends_to_a_file_stands_there() -> None:
    text = " ".join((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
    sent = re.findall(r"`([\w.]+)`(?: of [\w ]+)? (?:\(|in )`((?:workflow|tests)/[\w/.]+)`", text)
    assert len(sent) > 15
    for name, file in sent:
        assert re.search(rf"\b{name.rpartition('.')[2]}\b", (ROOT / file).read_text(encoding="utf-8")), name


def test_the_readme_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page for page in PAGES if page != "README.md" and f"]({page})" not in text] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_link_to_a_part_of_a_page_finds_it(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)\s]+#[^)\s]+)\)", text):
        path, _, part = link.partition("#")
        if "://" not in link:
            whole = ((ROOT / page).parent / path if path else ROOT / page).read_text(encoding="utf-8")
            heads = re.findall(r"^#+ (.+)$", whole, re.MULTILINE)
            assert part in [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads], link


def test_every_rule_has_its_row_in_the_architecture() -> None:
    rules = [path.read_text(encoding="utf-8") for path in (ROOT / "workflow/rules").glob("*.smk")]
    named = {name for text in rules for name in re.findall(r"^ *rule (\w+):$", text, re.MULTILINE)} | {"simulate"}
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    stated = {name for cells in tables(page, "Rule") for name in CODE.findall(cells[0])}
    assert stated == named


def test_every_key_of_an_episode_is_explained_and_no_other() -> None:
    page = (ROOT / "docs/artifact.md").read_text(encoding="utf-8")
    stated = [name for cells in tables(page, "Key") for name in CODE.findall(cells[0])]
    assert sorted(stated) == sorted(Episode.model_fields)


def test_the_episode_that_is_shown_is_one() -> None:
    page = (ROOT / "docs/artifact.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```json\n(.*?)\n```$", page, re.DOTALL | re.MULTILINE)
    episode = json.loads(shown)
    assert Episode.model_validate(episode).status == "ok"
    said = [(line["actor"], line["utterance"]) for line in episode["history"] if "utterance" in line]
    assert [(line["speaker"], line["text"]) for line in episode["transcript"]] == said


def test_the_verdict_that_is_shown_is_one() -> None:
    [shown] = blocks("docs/master.md", "json")
    verification = json.loads(shown)
    assert LineCheck.model_validate(verification["verdict"]).passed is verification["passed"]


def test_what_a_verdict_judges_is_named_for_both_speakers() -> None:
    page = (ROOT / "docs/master.md").read_text(encoding="utf-8")
    [nurse] = [cells for cells in tables(page, "Step") if "nurse's line" in cells[0]]
    assert ["critique", *CODE.findall(nurse[2])] == list(NurseLineCheck.model_fields)


def test_every_purpose_of_a_call_is_listed_and_no_other() -> None:
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    [row] = [cells for cells in tables(page, "key") if "by_purpose" in cells[0]]
    templates = (ROOT / "resources/prompts/full").glob("*_step.j2")
    assert sorted(CODE.findall(row[1])) == sorted(path.name.removesuffix("_step.j2") for path in templates)


def test_every_kind_of_failed_try_is_listed_and_no_other() -> None:
    page = (ROOT / "docs/journal.md").read_text(encoding="utf-8")
    [row] = [cells for cells in tables(page, "Kind") if cells[0] == "a failed try"]
    assert set(CODE.findall(row[1])) == {"call", "failed", *get_args(Kind), "invalid", "truncated"}


def test_the_exit_codes_are_those_of_the_code() -> None:
    page = (ROOT / "docs/engines.md").read_text(encoding="utf-8")
    stated = [cells[0] for cells in tables(page, "Exit code")]
    codes = [TooManyErrors.exit_code, InputError.exit_code, StopRun.exit_code, OUT_OF_TIME]
    assert stated == ["0", *map(str, codes), "128 + n"]


def test_every_backend_has_its_row_its_form_in_the_help_and_its_options() -> None:
    page = (ROOT / "docs/engines.md").read_text(encoding="utf-8")
    assert {name for cells in tables(page, "Backend") for name in CODE.findall(cells[0])} == set(BACKENDS)
    forms = parser().format_help().partition("Models: ")[2].partition("@FILE")[0].split("|")
    assert {re.match(r"\s*(\w*)", form)[1] for form in forms} == set(BACKENDS)  # type: ignore[index]
    kinds = get_args(get_args(Model)[0])
    assert {get_args(get_args(kind)[0].model_fields["backend"].annotation)[0] for kind in kinds} == set(BACKENDS)


def test_every_option_of_an_engine_that_reruns_nothing_is_named() -> None:
    rows = {name for key, _, _, reruns in tables(GUIDE, "Key") if reruns == "nothing" for name in CODE.findall(key)}
    beside = GUIDE.partition("A change of `gpu_memory_utilization`")[1:]
    named = {name.rpartition(".")[2] for name in rows} | set(
        CODE.findall("".join(beside).partition("reruns nothing")[0])
    )
    assert named >= RUNTIME_OPTIONS


def test_the_citation_names_the_paper() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert cited["cff-version"] == "1.2.0"
    assert f'version = "{cited["version"]}"' in project
    assert f'license = "{cited["license"]}"' in project
    (paper,) = cited["references"]
    assert paper["title"].startswith("TriageSim: ")
    assert [author["family-names"] for author in paper["authors"]] == [
        "Srirag",
        "Nguyen",
        "Joshi",
        "Narasimhan",
        "Kanhere",
    ]
    assert "arXiv:2603.10035" in [identifier["value"] for identifier in paper["identifiers"]]


def test_the_catalogue_file_states_what_it_must() -> None:
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text(encoding="utf-8"))["usage"]
    assert set(usage) == {"mandatory-flags", "software-stack-deployment", "report"}
    assert set(usage["mandatory-flags"]) == {"desc", "flags"}
    assert usage["software-stack-deployment"] == {"conda": True}
    profile = yaml.safe_load((ROOT / "profiles/default/profile.yaml").read_text(encoding="utf-8"))
    assert " ".join(profile["rerun-triggers"]) in usage["mandatory-flags"]["flags"]
