"""Scores the episodes of one file, and says what else there is to say of each (rule score).

A row an episode goes into each table that is asked for: agreement with the ground truth, the measures of completion,
drop-off and rewrites, the language; and a row a line into the table of what leaked.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from triagesim.console import command
from triagesim.language import write_language
from triagesim.measured import write_measures
from triagesim.score_rows import write_scores


def main() -> None:
    """Parse the arguments, score and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("episodes", type=Path, help="a .jsonl of episodes")
    parser.add_argument("--out", type=Path, help="a .csv of scores")
    parser.add_argument("--measures", type=Path, help="a .csv of completion, drop-off and rewrites")
    parser.add_argument("--verdicts", type=Path, help="for --measures: verdicts of rule judge_completion")
    parser.add_argument("--reviews", type=Path, help="for --measures: lines as clinicians would have them")
    parser.add_argument("--language", type=Path, help="a .csv of how both spoke; needs --leaks")
    parser.add_argument("--leaks", type=Path, help="a .csv of lines that nobody should say; needs --language")
    args = parser.parse_args()
    if (args.language is None) != (args.leaks is None):
        parser.error("--language and --leaks go together")
    if args.out:
        write_scores(args.episodes, args.out)
    if args.measures:
        write_measures(args.episodes, args.verdicts, args.reviews, args.measures)
    if args.language:
        write_language(args.episodes, args.language, args.leaks)


if __name__ == "__main__":
    command(main)
