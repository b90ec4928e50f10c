"""The spoken form: clinical English is said as people say it, nothing is lost, and both forms stay aligned."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from triagesim.errors import InputError
from triagesim.resources import load_yaml
from triagesim.speech import spoken
from triagesim.speech.spoken import align, rules_digest, split, spoken_form

PAIRS = yaml.safe_load((Path(__file__).parent / "data" / "spoken_pairs.yaml").read_text("utf-8"))

#: Pieces that rules look at, for texts in which they meet in every way.
_SPECIMENS = """
120/80 7/10 5-6 98.6 °F 37_°C 91% 325_mg mL 10:30 pm 3/14/2020 March_3 45yo M L R arm x2 days q4h $1.50 911 555-1234
1/2 ½ ² ٣ 1,200 .5 0 1st ED N/V s/p w/o w/ BP SpO2 O2 A&E Dr. I- th- … — - / & % + > < [ ] * ' ( ) , . pain and
to in the
"""
PIECES = [piece.replace("_", " ") for piece in _SPECIMENS.split()] + [" "] * 12 + ["\u200b", "😀", "\n"]
texts = st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))


def test_there_are_enough_pairs() -> None:
    assert len(PAIRS) >= 150
    assert len({written for written, _ in PAIRS}) == len(PAIRS)


@pytest.mark.parametrize(("written", "said"), PAIRS)
def test_what_is_written_is_said_as_people_say_it(written: str, said: str) -> None:
    assert spoken_form(written) == said


@given(texts)
@example("E\u200bD")
@example("L* arm")
@example("\ud800 7/10")
@example("1²3")
def test_no_digit_is_left_and_white_space_is_single(text: str) -> None:
    said = spoken_form(text)
    assert not any(map(str.isdigit, said))
    assert said == " ".join(said.split())


@given(texts)
def test_the_alignment_gives_both_forms_back_and_loses_no_character(text: str) -> None:
    spans = align(text)
    assert "".join(span.written for span in spans) == text
    assert "".join(span.spoken for span in spans) == spoken_form(text)
    assert all(span.written for span in spans)


@given(texts)
@example("L* arm")
@example("[[x] ED]")
def test_what_is_said_is_said_the_same_again(text: str) -> None:
    said = spoken_form(text)
    assert spoken_form(said) == said


@given(texts)
def test_every_word_of_letters_alone_stays_or_is_taken_by_a_rule(text: str) -> None:
    for span in align(text):
        if not span.kind:
            assert "".join(span.spoken.split()) == "".join(span.written.split())


def test_the_alignment_says_what_each_stretch_is() -> None:
    spans = [span for span in align("BP 120/80, pain 7/10 in the L arm.") if span.kind]
    assert [(span.written, span.kind) for span in spans] == [
        ("BP", "abbreviation"),
        ("120/80", "blood_pressure"),
        ("7/10", "score"),
        ("L", "laterality"),
    ]
    assert [span.spoken.strip() for span in spans] == [
        "blood pressure",
        "one hundred and twenty over eighty",
        "seven out of ten",
        "left",
    ]


def test_stretches_that_a_second_pass_changes_are_joined() -> None:
    assert spoken_form("L* arm") == "left arm"
    assert [(span.written, span.spoken) for span in align("L* arm")] == [("L", "left"), ("*", ""), (" arm", " arm")]


def test_an_abbreviation_is_never_said_as_another_one() -> None:
    for short, said in load_yaml("speech/spoken.yaml")["abbreviations"].items():
        assert spoken_form(said) == said, short


def test_the_digest_follows_rules_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before = rules_digest()
    monkeypatch.setattr(spoken, "VERSION", spoken.VERSION + 1)
    assert rules_digest() != before


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"find": "(", "say": ""}, "is no regular expression"),
        ({"find": "a", "say": "{b}"}, "names {b}, which isn't a group"),
        ({"find": "(?P<b>a)", "say": "{b:loud}"}, "no way of saying 'loud'"),
    ],
)
def test_a_broken_rule_is_named(entry: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=r"resources/speech/spoken.yaml: .*" + says.replace("{", r"\{")):
        spoken._rule({"kind": "x", **entry}, {}, load_yaml("speech/spoken.yaml"))


@given(st.text(alphabet="ab .,;!?"), st.integers(1, 30))
def test_a_split_keeps_every_word_within_the_limit(text: str, limit: int) -> None:
    parts = split(text, limit)
    assert all(0 < len(part) <= limit for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


def test_a_split_prefers_sentences_then_clauses_then_joining_words_then_words() -> None:
    text = "It hurts. It began at noon, after lunch, when I stood up from the table"
    assert split(text, 100) == [text]
    assert split(text, 45) == ["It hurts.", "It began at noon, after lunch,", "when I stood up from the table"]
    assert split("I sat down and it went away again", 25) == ["I sat down", "and it went away again"]
    assert split("one two three", 8) == ["one two", "three"]
    assert split("abcdefgh", 3) == ["abc", "def", "gh"]
