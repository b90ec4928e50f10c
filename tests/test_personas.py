"""Personas: the registry, the models made from it, generated pools, loading and drawing."""

from __future__ import annotations

import csv
import json
import random
import subprocess
import sys
from collections import Counter
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from triagesim.config import check_config
from triagesim.errors import InputError
from triagesim.pairing import check_files
from triagesim.personas import (
    INCOMPATIBLE,
    PERSONAS,
    ROLES,
    NursePersona,
    PatientPersona,
    Persona,
    Pool,
    Registry,
    Role,
    Trait,
    _inverses,
    anchors,
    for_case,
    generate,
    load_personas,
    registry,
    traits_of,
)
from triagesim.resources import RESOURCES, load_yaml

SCRIPT = Path(__file__).resolve().parents[1] / "workflow" / "scripts" / "generate_personas.py"
each_role = pytest.mark.parametrize("role", ROLES)


def personas(role: Role, numbers: list[int]) -> list[Persona]:
    """The personas with these numbers."""
    return [PERSONAS[role].model_validate(registry(role).at(number)) for number in numbers]


def contradicts(levels: dict[str, str]) -> bool:
    """Whether an incompatible pair is in one persona's levels."""
    return any(pair.items() <= levels.items() for pair in INCOMPATIBLE)


@pytest.mark.parametrize(("role", "count"), [("patient", 104_976), ("nurse", 3_888)])
def test_registry_allows_every_combination_but_the_incompatible_ones(role: Role, count: int) -> None:
    known = registry(role)
    (pair,) = known.incompatible
    combinations = prod(len(trait.levels) for trait in known.traits.values())
    barred = combinations // prod(len(known.traits[name].levels) for name in pair)
    assert known.size == combinations - barred == count
    rows = list(generate(role))
    assert len({tuple(row.values()) for row in rows}) == count
    assert not any(contradicts(row) for row in rows)


def test_exactly_two_pairs_are_incompatible() -> None:
    assert sorted(map(sorted, (pair.items() for pair in INCOMPATIBLE))) == [
        [("algorithm_reliance", "intuition_led"), ("expertise", "novice")],
        [("focus", "frequent_tangents"), ("verbosity", "terse")],
    ]


@each_role
def test_every_trait_has_a_definition_sources_and_anchors_that_differ(role: Role) -> None:
    known = registry(role)
    texts = [anchor for trait in known.traits.values() for anchor in trait.levels.values()]
    assert len(set(texts)) == len(texts)
    for trait in known.traits.values():
        assert trait.definition.strip()
        assert all(len(anchor.split()) >= 5 for anchor in trait.levels.values()), trait.name
        assert all(known.sources[key].title for key in trait.sources), trait.name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"traits": None}, "expected the keys"),
        ({"traits": {"mood": {"definition": "x"}}}, "traits.mood.levels"),
        ({"traits": {"mood": "x"}}, "can't be read"),
        ({"incompatible": [{"expertise": "novice", "workload": "idle"}]}, "expected two traits, each with one of its"),
        ({"incompatible": [{"expertise": "novice"}]}, "expected two traits"),
        ({"sources": {}}, "traits.gender: .* is not among the sources"),
        ({"anything": 1}, "anything"),
    ],
)
def test_a_faulty_registry_is_reported_with_its_file_and_key(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, object], said: str
) -> None:
    broken = {**load_yaml("personas/nurse.yaml"), **change}
    monkeypatch.setattr("triagesim.personas.load_yaml", lambda name: broken)
    with pytest.raises(InputError, match=f"resources/personas/nurse.yaml: .*{said}"):
        registry.__wrapped__("nurse")


def share(source: str = "johnson2018", given: dict[str, str] | None = None, **levels: float) -> dict[str, object]:
    """What the registry says of the prevalence of levels."""
    return {"levels": levels, "source": source, "given": given or {}}


IMPOSSIBLE = [
    ([share(idle=0.2)], "no level of the trait: idle"),
    ([share(quiet=1.2)], "less than or equal to 1"),
    ([share(quiet=0.7, busy=0.6)], "add up to 1"),
    ([share(quiet=0.7), share(busy=0.6)], "add up to 1"),
    ([share(quiet=0.2, busy=0.2, overloaded=0.2)], "add up to 1"),
    ([share(quiet=0.2), share(quiet=0.3)], "two shares for quiet"),
    ([share()], "at least 1 item"),
    ([share(quiet=0.2), share(given={"gender": "male"}, busy=0.3)], "by the levels of one other trait"),
    ([share(given={"gender": "male", "expertise": "expert"}, busy=0.3)], "at most 1 item"),
]


@pytest.mark.parametrize(("prevalence", "said"), IMPOSSIBLE)
def test_a_prevalence_that_cannot_be_is_refused(prevalence: list[dict[str, object]], said: str) -> None:
    trait = registry("nurse").traits["workload"].model_dump()
    with pytest.raises(ValidationError, match=said):
        Trait.model_validate(trait | {"prevalence": prevalence})


UNDRAWABLE = [
    ("gender", share(given={"workload": "quiet"}, male=0.3)),
    ("workload", share(given={"gender": "neither"}, quiet=0.3)),
    ("workload", share(given={"nobody": "x"}, quiet=0.3)),
    ("expertise", share(given={"gender": "male"}, novice=0.3)),
]


@pytest.mark.parametrize(("name", "prevalence"), UNDRAWABLE)
def test_a_share_is_given_by_a_trait_that_is_drawn_before(name: str, prevalence: dict[str, object]) -> None:
    content = registry("nurse").model_dump()
    content["traits"][name]["prevalence"] = [prevalence]
    with pytest.raises(ValidationError, match=rf"traits\.{name}: shares are given by a trait that stands before it"):
        Registry.model_validate(content)


@each_role
def test_every_source_of_the_registry_is_cited_by_a_trait(role: Role) -> None:
    known = registry(role)
    cited = {key for trait in known.traits.values() for key in trait.sources}
    counted = {statement.source for trait in known.traits.values() for statement in trait.prevalence}
    assert set(known.sources) == cited | counted


@each_role
def test_the_documentation_covers_every_trait_level_and_reference(role: Role) -> None:
    text = " ".join((RESOURCES.parent / "docs" / "personas.md").read_text(encoding="utf-8").split())
    known = registry(role)
    for trait in known.traits.values():
        assert f"`{trait.name}`" in text
        assert ", ".join(trait.levels) in text
    for source in known.sources.values():
        assert source.title in text
        assert source.where in text


@each_role
def test_anchors_speak_of_an_observed_person_not_to_a_reader(role: Role) -> None:
    words = {word for t in registry(role).traits.values() for a in t.levels.values() for word in a.lower().split()}
    assert not words & {"you", "your", "you're"}


@given(st.sampled_from(ROLES), st.data())
def test_number_and_persona_lead_to_each_other(role: Role, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, registry(role).size - 1))
    levels = registry(role).at(number)
    assert registry(role).index(levels) == number
    assert registry(role).index(dict(reversed(levels.items()))) == number


@given(st.sampled_from(ROLES), st.data())
def test_levels_have_a_number_exactly_if_they_make_a_persona(role: Role, data: st.DataObject) -> None:
    levels = {
        name: data.draw(st.sampled_from([*trait.levels, "unheard of"])) for name, trait in registry(role).traits.items()
    }
    if contradicts(levels) or "unheard of" in levels.values():
        with pytest.raises(ValidationError):
            PERSONAS[role].model_validate(levels)
        with pytest.raises(InputError):
            registry(role).index(levels)
    else:
        assert registry(role).index(traits_of(PERSONAS[role].model_validate(levels))) >= 0


@each_role
def test_states_that_the_case_decides_are_not_persona_fields(role: Role) -> None:
    assert not {"cognitive_state", "intoxication"} & set(PERSONAS[role].model_fields)


def test_ethnicity_and_instruction_are_kept_but_are_no_traits() -> None:
    hidden = {"ethnicity": "MARKER-1", "instruction": "MARKER-2"}
    for role in ROLES:
        persona = PERSONAS[role].model_validate(registry(role).at(5) | hidden)
        assert persona.model_dump().items() >= hidden.items()
        assert traits_of(persona) == registry(role).at(5)
        assert "MARKER" not in str(anchors(role, traits_of(persona)))


def test_a_patients_gender_is_no_trait_and_a_nurses_is() -> None:
    patient = PatientPersona.model_validate(registry("patient").at(0) | {"gender": "female"})
    assert "gender" not in traits_of(patient)
    assert "gender" in traits_of(personas("nurse", [0])[0])


def test_anchors_pair_each_level_with_its_text() -> None:
    found = anchors("nurse", {"workload": "busy", "gender": "male"})
    trait = registry("nurse").traits["workload"]
    assert list(found) == ["gender", "workload"]
    assert found["workload"] == ("busy", trait.levels["busy"])


@each_role
def test_a_larger_sample_contains_a_smaller_one(role: Role) -> None:
    small, large, other = (
        [registry(role).index(row) for row in generate(role, "uniform", n, seed)]
        for n, seed in [(50, 1), (400, 1), (50, 2)]
    )
    assert (len(set(small)), len(set(large))) == (50, 400)
    assert set(small) < set(large)
    assert set(small) != set(other)
    assert large == sorted(large)


@each_role
def test_a_sample_of_all_is_all(role: Role) -> None:
    assert list(generate(role, "uniform", registry(role).size)) == list(generate(role))


@pytest.mark.parametrize("n", [None, 0, -3, 3_889])
def test_a_sample_size_that_cannot_be_is_refused_with_the_range(n: int | None) -> None:
    with pytest.raises(InputError, match="3,888"):
        generate("nurse", "uniform", n)


def run_script(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command as a person types it, away from the repository."""
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")


def test_command_writes_both_whole_pools_and_they_load(tmp_path: Path) -> None:
    done = run_script("--out-dir", tmp_path / "pools")
    assert done.returncode == 0, done.stderr
    for role in ROLES:
        loaded = load_personas(tmp_path / "pools" / f"{role}.jsonl", PERSONAS[role])
        assert len(loaded) == registry(role).size
        assert [registry(role).index(traits_of(persona)) for persona in loaded] == list(range(registry(role).size))


def test_command_writes_a_sample_of_one_role(tmp_path: Path) -> None:
    options = ("--role", "nurse", "--out", tmp_path / "p.jsonl", "--sampling", "uniform", "--n", "7", "--seed", "3")
    assert run_script(*options).returncode == 0
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert rows == list(generate("nurse", "uniform", 7, 3))
    with (tmp_path / "p.weights.csv").open(encoding="utf-8", newline="") as file:
        shares = {(row["trait"], row["level"]): (row["weight"], int(row["personas"])) for row in csv.DictReader(file)}
    assert shares["expertise", "novice"] == ("0.25", sum(row["expertise"] == "novice" for row in rows))
    assert sum(count for (trait, _), (_, count) in shares.items() if trait == "workload") == 7


def test_command_copies_a_users_own_personas_with_what_is_not_a_trait(tmp_path: Path) -> None:
    example = RESOURCES / "personas" / "example_patient.yaml"
    assert run_script("--role", "patient", "--file", example, "--out", tmp_path / "p.jsonl").returncode == 0
    assert load_personas(tmp_path / "p.jsonl", PatientPersona) == load_personas(example, PatientPersona)


def test_command_refuses_a_faulty_file_with_one_line_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("- gender: male\n")
    done = run_script("--role", "nurse", "--file", tmp_path / "mine.yaml", "--out", tmp_path / "p.jsonl")
    assert done.returncode == InputError.exit_code
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "p.jsonl").exists()


@pytest.mark.parametrize("options", [(), ("--role", "nurse"), ("--out-dir", "x", "--role", "nurse", "--out", "y")])
def test_command_asks_for_one_destination(options: tuple[str, ...]) -> None:
    done = run_script(*options)
    assert done.returncode == 2
    assert "either --out-dir, or --role and --out" in done.stderr


@each_role
def test_example_personas_load(role: Role) -> None:
    assert len(load_personas(RESOURCES / "personas" / f"example_{role}.yaml", PERSONAS[role])) == 3


def edited(**changes: object) -> dict[str, object]:
    """A nurse's row with changes; a key set to None is left out."""
    return {key: value for key, value in (registry("nurse").at(0) | changes).items() if value is not None}


FAULTS = [
    (edited(workload=None, workloads="busy"), ["'workloads'", "did you mean 'workload'?"]),
    (edited(workload="bussy"), ["workload is 'bussy'", "quiet or busy or overloaded", "did you mean 'busy'?"]),
    (edited(workload=3), ["workload is '3'", "quiet or busy or overloaded"]),
    (edited(expertise=None), ["'expertise' is missing", "novice or competent or expert"]),
    (edited(instruction=7), ["instruction: ", "string"]),
    (edited(expertise="novice", algorithm_reliance="intuition_led"), ["expertise novice", "contradict"]),
    (edited(cognitive_state="alert"), ["'cognitive_state' is no key of a nurse persona"]),
]


@pytest.mark.parametrize(("row", "said"), FAULTS)
@pytest.mark.parametrize("suffix", [".jsonl", ".yaml"])
def test_a_faulty_persona_is_reported_with_file_place_key_and_correction(
    tmp_path: Path, suffix: str, row: dict[str, object], said: list[str]
) -> None:
    rows, path = [registry("nurse").at(9), row], tmp_path / f"mine{suffix}"
    path.write_text("\n".join(map(json.dumps, rows)) if suffix == ".jsonl" else json.dumps(rows))
    with pytest.raises(InputError) as caught:
        load_personas(path, NursePersona)
    place = "line 2" if suffix == ".jsonl" else "item 2"
    for text in [str(path), place, *said]:
        assert text in str(caught.value)


def test_all_faulty_personas_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(json.dumps(row) for row, _ in [FAULTS[1], (registry("nurse").at(9), []), FAULTS[3]]))
    with pytest.raises(InputError, match="2 personas are faulty") as caught:
        load_personas(path, NursePersona)
    first, second = str(caught.value).splitlines()[1:]
    assert first.startswith("  line 1: workload is 'bussy'")
    assert second.startswith("  line 3: 'expertise' is missing")
    path.write_text("\n".join([json.dumps(FAULTS[1][0])] * 25))
    with pytest.raises(InputError, match="25 personas are faulty") as caught:
        load_personas(path, NursePersona)
    assert str(caught.value).splitlines()[-2:][0].startswith("  line 20:")
    assert str(caught.value).endswith("\n  and 5 more")


def test_own_personas_are_checked_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(FAULTS[1][0]))
    config = {
        "data": {"source": "resources/cases/vignettes.jsonl", "provenance": "synthetic"},
        "models": {"agenda": {"backend": "agenda"}},
        "pairings": [{"nurse": "agenda", "patient": "agenda"}],
        "personas": {"nurse": {"file": str(path)}},
    }
    with pytest.raises(InputError, match=r"mine\.jsonl, line 1: workload is 'bussy'"):
        check_files(check_config(config))


def test_a_mistyped_key_is_one_problem_not_two(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(json.dumps(edited(workload=None, workloads="busy")))
    with pytest.raises(InputError, match="workloads") as caught:
        load_personas(tmp_path / "p.jsonl", NursePersona)
    assert "missing" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("p.jsonl", "", "holds no personas"),
        ("p.yaml", "# nobody yet\n", "holds no personas"),
        ("p.yaml", "gender: male\n", "expected a list"),
        ("p.yaml", "- just words\n", "item 1: expected traits and levels"),
        ("p.yaml", "- {gender: male\n", "line"),
        ("p.json", "[]", "expected .jsonl, .yaml or .yml"),
    ],
)
def test_a_file_that_holds_no_personas_is_an_error(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=said) as caught:
        load_personas(tmp_path / name, NursePersona)
    assert str(tmp_path / name) in str(caught.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_personas(tmp_path / "p.jsonl", NursePersona)


#: Pools below and above the size at which the search for a draw changes its way, with regular and with random numbers.
POOLS = [[0, 1], [7, 500, 9_000], list(range(300)), list(range(0, 100_000, 137)), list(range(5_000))]


@pytest.mark.parametrize("numbers", POOLS, ids=len)
def test_a_draw_depends_on_seed_and_episode_alone(numbers: list[int]) -> None:
    members = personas("patient", numbers)
    shuffled = random.Random(4).sample(members, len(members))
    pool, again = Pool(members, "patient"), Pool(shuffled, "patient")
    episodes = [f"case-{k}-0" for k in range(40)]
    drawn = [pool.draw(3, episode) for episode in episodes]
    assert drawn == [again.draw(3, episode) for episode in reversed(episodes)][::-1]
    assert drawn != [pool.draw(4, episode) for episode in episodes]


@pytest.mark.parametrize("numbers", [range(20), range(0, 100_000, 50)], ids=["few", "many"])
def test_a_draw_is_the_same_whether_its_inverses_are_kept_or_computed(
    numbers: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, episodes = Pool(personas("patient", list(numbers)), "patient"), [f"case-{k}-0" for k in range(40)]
    kept = [pool.draw(3, episode) for episode in episodes]
    monkeypatch.setattr("triagesim.personas._LARGEST_TABLE", 0)
    monkeypatch.setattr("triagesim.personas._inverses", _inverses.__wrapped__)
    assert [pool.draw(3, episode) for episode in episodes] == kept


@pytest.mark.parametrize(("before", "after"), [(2, 3), (200, 420), (300, 2_000)])
def test_a_larger_pool_reassigns_an_episode_only_to_a_newcomer(before: int, after: int) -> None:
    members = personas("patient", random.Random(8).sample(range(registry("patient").size), after))
    small, large = Pool(members[:before], "patient"), Pool(members, "patient")
    newcomers = {registry("patient").index(traits_of(persona)) for persona in members[before:]}
    draws = [(small.draw(0, f"e{k}"), large.draw(0, f"e{k}")) for k in range(300)]
    moved = [new for old, new in draws if old != new]
    assert {registry("patient").index(traits_of(persona)) for persona in moved} <= newcomers
    # An episode moves with probability 1 - before/after: five standard deviations around that.
    share = 1 - before / after
    assert abs(len(moved) - 300 * share) < 5 * (300 * share * (1 - share)) ** 0.5


@pytest.mark.parametrize("numbers", [[0, 1], list(range(50)), list(range(0, 100_000, 500))], ids=len)
def test_draws_are_uniform_over_the_pool(numbers: list[int]) -> None:
    pool, each = Pool(personas("patient", numbers), "patient"), 40
    counts = Counter(
        registry("patient").index(traits_of(pool.draw(1, f"case-{k}-0"))) for k in range(each * len(numbers))
    )
    statistic = sum((counts[number] - each) ** 2 / each for number in numbers)
    freedom = len(numbers) - 1
    # Chi-square has mean `freedom` and variance twice that; a fair draw is beyond 4.5 deviations about never.
    assert abs(statistic - freedom) < 4.5 * (2 * freedom) ** 0.5


def test_the_whole_registry_is_drawn_from_end_to_end() -> None:
    pool = Pool(personas("nurse", list(range(registry("nurse").size))), "nurse")
    tenths = Counter(registry("nurse").index(traits_of(pool.draw(0, f"e{k}"))) * 10 // 3_888 for k in range(2_000))
    assert len(tenths) == 10
    assert min(tenths.values()) > 140
    assert max(tenths.values()) < 260


def test_personas_with_equal_traits_are_drawn_as_often_as_any_other() -> None:
    twins = [
        PatientPersona.model_validate(registry("patient").at(3) | {"ethnicity": name})
        for name in ("one", "two", "three")
    ]
    pool = Pool([*twins, *personas("patient", [8])], "patient")
    counts = Counter(pool.draw(2, f"e{k}").ethnicity for k in range(2_000))
    assert set(counts) == {"one", "two", "three", None}
    assert all(400 < count < 600 for count in counts.values())


def test_nurse_and_patient_of_an_episode_are_drawn_independently() -> None:
    pools = [Pool(personas(role, [0, 1]), role) for role in ROLES]
    pairs = Counter(tuple(str(traits_of(pool.draw(0, f"e{k}"))) for pool in pools) for k in range(400))
    assert len(pairs) == 4
    assert min(pairs.values()) > 60


def test_a_pool_of_the_wrong_role_or_of_nobody_is_refused() -> None:
    with pytest.raises(InputError, match="nurse persona is in a pool of patient personas"):
        Pool(personas("nurse", [0]), "patient")
    with pytest.raises(InputError, match="empty"):
        Pool([], "nurse")


def test_a_case_draws_among_the_members_of_its_age_group() -> None:
    members = personas("patient", random.Random(5).sample(range(registry("patient").size), 400))
    pool = Pool(members, "patient")
    for group in ("adult", "older"):
        alone = Pool([persona for persona in members if traits_of(persona)["age_group"] == group], "patient")
        drawn = [pool.draw(3, f"e{k}", "male", group) for k in range(300)]
        assert drawn == [alone.draw(3, f"e{k}") for k in range(300)]
    assert {traits_of(pool.draw(3, f"e{k}"))["age_group"] for k in range(50)} == {"adult", "older"}


def test_a_case_draws_among_the_members_of_its_gender_and_those_without_one() -> None:
    plain = registry("patient").at(0)
    genders = ["female", "male", None]
    members = [
        PatientPersona.model_validate({**registry("patient").at(k), "gender": genders[k % 3]}) for k in range(60)
    ]
    pool = Pool(members, "patient")
    assert {pool.draw(0, f"e{k}", "male", "adult").gender for k in range(200)} == {"male", None}
    assert {pool.draw(0, f"e{k}", None, "adult").gender for k in range(200)} == {"female", "male", None}
    only = Pool([PatientPersona.model_validate({**plain, "gender": "female"})], "patient")
    assert only.draw(0, "e0", "male", "older").gender == "female"


def test_a_member_that_is_added_takes_over_cases_of_its_age_group_alone() -> None:
    members = personas("patient", random.Random(6).sample(range(registry("patient").size), 60))
    small, large = Pool(members[:-1], "patient"), Pool(members, "patient")
    new = members[-1]
    for group in ("adult", "older"):
        draws = [(small.draw(0, f"e{k}", None, group), large.draw(0, f"e{k}", None, group)) for k in range(600)]
        assert {new} >= {after for before, after in draws if before != after}
        assert (new in [after for _, after in draws]) is (traits_of(new)["age_group"] == group)


def test_a_patient_takes_the_cases_gender_and_age_group() -> None:
    (persona,) = personas("patient", [0])
    taken = for_case(persona, "male", "older", seed=0, episode_id="a-0")
    assert (taken.gender, traits_of(taken)["age_group"]) == ("male", "older")
    assert traits_of(taken) | {"age_group": "adult"} == traits_of(persona)
    assert persona.gender is None


def test_without_a_case_gender_the_persona_keeps_its_own_or_one_is_drawn() -> None:
    (persona,) = personas("patient", [0])
    own = persona.model_copy(update={"gender": "non-binary"})
    assert for_case(own, None, None, seed=0, episode_id="a-0") == own
    genders = [for_case(persona, None, None, seed=0, episode_id=f"e{k}").gender for k in range(400)]
    assert genders == [for_case(persona, None, None, seed=0, episode_id=f"e{k}").gender for k in range(400)]
    assert 150 < genders.count("female") < 250
    assert set(genders) == {"female", "male"}
