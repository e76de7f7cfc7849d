"""Commands on a finished run: `uniot report`, `label`, `export`, `push` and `pull`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from uniot.cli.options import Preferred, PrivatePrior, check_folder, check_writable
from uniot.cli.page import (
    LOCALHOST,
    AllowNetwork,
    OpenBrowser,
    PageHost,
    PageOptions,
    PagePort,
    after_naming,
    serve_page,
)
from uniot.cli.screen import console, print_line, working
from uniot.errors import SettingsError
from uniot.io.text import command, counted, plural, quoted


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    out: Annotated[
        Path | None,
        typer.Option(help="HTML file to write. Default: report.html in the run folder.", show_default=False),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(help="Also write every figure as PDF and SVG to this folder, for papers.", show_default=False),
    ] = None,
    private_prior: PrivatePrior = None,
    prefer: Preferred = None,
) -> None:
    """Write a web page that shows the results of a run; it needs no internet.

    Names that you gave to groups with `uniot label` are used.

    --private-prior and --prefer call more or fewer images unknown on this page; the run does not change.

    Example: `uniot report run/ --figures figures/`
    """
    from uniot.report import write_report
    from uniot.runs import Run

    if out is not None:
        check_writable(out)
    if figures is not None:
        check_folder(figures)
    opened = Run.open(run, private_prior, None if prefer is None else prefer.value)
    with working("Drawing the report"):
        written = write_report(opened, out, figures)
    if opened.outdated_annotations is not None:
        print_line(f"Warning: {opened.outdated_annotations}", err=True)
    screen = console()
    screen.print(written.sentence)
    if written.figures:
        n_figures = len(written.figures) // 2
        are = plural(n_figures, "is", "are")
        screen.print(f"{counted(n_figures, 'figure')} {are} written to {quoted(figures)}, each as PDF and SVG.")
    size = written.page.stat().st_size / 1e6
    screen.print(f"{quoted(written.page)} is written, {size:.1f} MB. Next: open it in a browser.")


class ExportFormat(Enum):
    """Format of --export."""

    CSV = "csv"
    JSONL = "jsonl"
    COCO = "coco"
    FIFTYONE = "fiftyone"
    LABEL_STUDIO = "label-studio"


def label(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    open_browser: OpenBrowser = False,
    export: Annotated[
        Path | None,
        typer.Option("--export", help="Do not open the page; write the labels to this file (for fiftyone: folder)."),
    ] = None,
    kind: Annotated[
        ExportFormat | None,
        typer.Option("--format", help="Format of --export. Default: by the ending, .csv or .jsonl."),
    ] = None,
    given: Annotated[
        Path | None,
        typer.Option("--import", help="Do not open the page; read labels from a .csv or .jsonl with path and label."),
    ] = None,
    port: PagePort = 0,
    host: PageHost = LOCALHOST,
    allow_network: AllowNetwork = False,
) -> None:
    """Name the groups of unknown images on a page in your browser, and correct labels.

    As long as the run has no answers, the page begins with the questions of `uniot ask`; the groups are beside them.

    Groups can be merged and split, images moved or discarded, and every action undone. All is saved at once, and
    `uniot report`, `uniot predict`, predictions.csv and `uniot adapt --continue` use it.

    Example: `uniot label run/ --open`

    For other labelling tools: `uniot label run/ --export tasks.json --format label-studio`
    """
    if kind is not None and export is None:
        raise SettingsError("--format is given without --export. Give --export FILE as well, or leave --format out.")
    if given is not None or export is not None:
        if given is not None:
            from uniot.labelling.publishing import import_run

            print_line(f"{import_run(run, given)} Next: {command('label', run)}")
        if export is not None:
            from uniot.labelling.publishing import export_run

            exported = export_run(run, export, None if kind is None else kind.value)
            following = after_naming(run) if len(exported) else command("label", run)
            print_line(f"{exported.sentence()} Next: {following}")
        return
    serve_page(run, PageOptions(open_browser, port, host, allow_network), command("label", run))


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    onnx: Annotated[Path, typer.Option(help="The ONNX file to write.")],
) -> None:
    """Write a run as one ONNX file, from pixels or embeddings to predictions.

    Example: `uniot export run/ --onnx model.onnx`
    """
    check_writable(onnx)
    with working("Loading PyTorch and the run"):
        from uniot.export.onnx import OUTPUTS, export_onnx
        from uniot.runs import Run

        model = Run.open(run).answered_model
    with working("Writing network and rule as ONNX; this takes up to a minute") as next_part:
        written = export_onnx(model, onnx, on_part=next_part)
    screen = console()
    shape = ", ".join(["n", *map(str, written.input_shape)])
    screen.print(f"Input: {written.input_name}, {written.input_type} ({shape}). Outputs: {', '.join(OUTPUTS)}.")
    if written.was_run:
        screen.print("Checked: ONNX Runtime gives the same results as torch.")
    else:
        screen.print(
            "Not checked: ONNX Runtime is not installed. `pip install onnxruntime`, and export again to check."
        )
    size = onnx.stat().st_size / 1e6
    following = f"onnxruntime.InferenceSession({str(onnx)!r}).run(None, {{{written.input_name!r}: x}})"
    if written.input_name == "pixels":
        following = f"python examples/run_onnx.py {quoted(onnx)} photo.jpg"
    print_line(f"{quoted(onnx)} is written, {size:.1f} MB. Next: {following}")


_REPOSITORY = "`owner/name` on the Hugging Face hub; or a folder, such as ./shared."


def push(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    repository: Annotated[str, typer.Argument(help=_REPOSITORY)],
    public: Annotated[
        bool, typer.Option("--public", help="Make it visible to everybody. Default: only to you.")
    ] = False,
    licence: Annotated[str | None, typer.Option(help="For the model card: mit, cc-by-4.0, …")] = None,
) -> None:
    """Share a finished run, without the predictions, features and file names of the target.

    Uses the token of `hf auth login`, or HF_TOKEN.

    Example: `uniot push run/ owner/name`
    """
    from uniot.export.hub import push as send

    place = send(run, repository, private=not public, licence=licence)
    screen = console()
    screen.print(
        f"{place} contains the weights, the class names, the settings and a model card; no predictions for the target, "
        "no features of it, and no paths."
    )
    print_line(f"Next: {command('pull', repository, '--out', 'copy/')}")


def pull(
    repository: Annotated[str, typer.Argument(help=_REPOSITORY)],
    out: Annotated[Path, typer.Option(help="Folder for the run, new or empty.")],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit; main by default.")] = None,
) -> None:
    """Download a shared run; it contains tensors and text only, which are checked before they are used.

    Example: `uniot pull owner/name --out run/`
    """
    from uniot.export.hub import pull as fetch

    model = fetch(repository, out, revision)
    new = "photo.jpg" if model.reader is not None else "new.npz"
    groups = counted(model.groups.n_groups, "group")
    classes = counted(len(model.classes), "class", "classes")
    print_line(f"{quoted(out)} contains a run with {classes} and {groups} of unknown samples.")
    print_line(f"Next: {command('predict', out, new)}")
