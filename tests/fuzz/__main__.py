"""`python -m tests.fuzz`: the coverage-guided fuzzer on each parser; what it tried is kept in .fuzz for the next run."""

from pathlib import Path
from typing import Annotated

import typer

from tests.fuzz.guided import Outcome, fuzz
from tests.fuzz.harnesses import HARNESSES

PLACE = Path(__file__).parents[2] / ".fuzz"


def main(
    harness: Annotated[str | None, typer.Argument(help=f"One of {', '.join(HARNESSES)}; else all.")] = None,
    seconds: Annotated[int, typer.Option(help="For each harness.")] = 60,
    processes: Annotated[int, typer.Option(help="On how many cores.")] = 1,
    input: Annotated[Path | None, typer.Option(help="Run the harness on this file alone.")] = None,
) -> None:
    """Fuzzes the parsers."""
    if harness not in (None, *HARNESSES) or (input and not harness):
        raise typer.BadParameter(f"give one of {', '.join(HARNESSES)}")
    if input and harness:
        accepted = HARNESSES[harness].check(input.read_bytes()) is not None
        typer.echo("accepted" if accepted else "refused")
        return
    chosen = [harness] if harness else [*HARNESSES]
    typer.echo(f"{'harness':12}{'executions':>12}{'edges':>8}{'features':>10}{'accepted':>15}{'peak MB':>9}")
    failed = False
    for name, outcome in fuzz(chosen, PLACE, seconds=seconds, processes=processes):
        typer.echo(_line(name, outcome))
        failed |= outcome.failing is not None
    raise typer.Exit(failed)


def _line(name: str, outcome: Outcome) -> str:
    corpus = [path.read_bytes() for path in outcome.corpus.iterdir()]
    accepted = f"{sum(HARNESSES[name].check(data) is not None for data in corpus)} of {len(corpus)}"
    line = f"{name:12}{outcome.executions:12}{outcome.edges:8}{outcome.features:10}{accepted:>15}{outcome.peak_mb:9}"
    if outcome.failing is None:
        return line
    return (
        f"{line}\n{outcome.error}\n{name} FAILS on {outcome.failing.read_bytes()!r}\n"
        f"Replay: python -m tests.fuzz {name} --input {outcome.failing}"
    )


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
