"""Texts as long as nobody writes: reading takes time in proportion, and finds what it finds in a short one."""

from __future__ import annotations

from triagesim.backends.agenda.understanding import read

LONG = 8_000


def test_a_clause_without_end_is_read() -> None:
    """With time in the square of the length this runs for minutes."""
    assert read("chest pain " * LONG).present == read("chest pain").present != frozenset()


def test_blanks_without_end_are_read() -> None:
    """So do these, in a complaint of a million of them."""
    for blank in (" ", "\n", "\t ", "\u3000"):
        assert read("chest pain" + blank * 500_000).present == read("chest pain").present != frozenset()


def test_a_negation_counts_beside_its_finding_in_a_long_clause() -> None:
    assert "chest_pain" in read("well " * LONG + "no chest pain").absent
    assert "chest_pain" in read("no chest pain " + "well " * LONG).absent
