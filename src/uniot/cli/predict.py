"""`uniot predict`: a finished run answers for samples that it has not seen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uniot.cli.screen import verdict


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    new: Annotated[Path, typer.Argument(help="New embeddings: an .npz with x (n, d), and ids if you like.")],
    out: Annotated[Path | None, typer.Option(help="A .csv to write; standard output if not given.")] = None,
) -> None:
    """Label new samples with a finished run, each on its own.

    Example: `uniot predict run/ new.npz --out new.csv`
    """
    from uniot.data.embedding_files import read_embeddings
    from uniot.estimator import UniOT
    from uniot.model import predictions_csv
    from uniot.run_folder import write_text

    model = UniOT.load(run)
    embeddings = read_embeddings(new)
    prediction = model.predict_full(embeddings.x)
    table = predictions_csv(model.model_, prediction, embeddings.ids)
    if out is None:
        typer.echo(table, nl=False)
        typer.echo(verdict(prediction), err=True)
        return
    write_text(out, table)
    typer.echo(f"{verdict(prediction)} Every answer is in {out}.")
