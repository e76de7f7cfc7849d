"""Execute the scripts of examples/gallery and write their pages and pictures into docs/gallery.

    python docs/make_gallery.py                  # all of them; `make gallery` does the same
    python docs/make_gallery.py 04 07            # those whose names begin so
    python docs/make_gallery.py --check          # run them, write nothing: their asserts and times are what counts

A script is plain Python with cells: a line `# %%` begins code, `# %% [markdown]` begins text in comments. Every script
runs in a process of its own. What a cell prints and the figures that it leaves open come before and after its code; the
first figure of a page stands at its top and, smaller, on the index. What the text promises, the script asserts.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "examples" / "gallery"
PAGES = ROOT / "docs" / "gallery"
SECONDS, ALL_SECONDS, PICTURE_BYTES = 90, 720, 150_000
STYLE = {
    "figure.dpi": 110,
    "savefig.bbox": "tight",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Cell:
    """A part of a script: text in Markdown, or code."""

    text: bool
    content: str


def scripts() -> list[Path]:
    """Return the scripts in their order."""
    return sorted(SCRIPTS.glob("[0-9]*.py"))


def cells(script: str) -> list[Cell]:
    """Split a script in percent format into its cells; what comes before the first one is left out."""
    parts = re.split(r"^# %%(.*)\n", script, flags=re.M)[1:]
    found = []
    for kind, content in zip(parts[::2], parts[1::2], strict=True):
        text = "[markdown]" in kind
        if text:
            content = re.sub(r"^# ?", "", content, flags=re.M)
        found.append(Cell(text, content.strip("\n")))
    return found


def title(script: str) -> str:
    """Return the first heading of a script."""
    return cells(script)[0].content.splitlines()[0].removeprefix("# ")


def lead(script: str) -> str:
    """Return the first paragraph under the title, in one line."""
    return " ".join(cells(script)[0].content.split("\n\n")[1].split())


@dataclass(frozen=True)
class Result:
    """What a cell of code left: names and descriptions of its pictures, and what it printed."""

    pictures: list[tuple[str, str]]
    printed: str


def execute(script: Path, out: Path) -> None:
    """Run a script cell by cell and write its page and pictures into `out`."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    mpl.rcParams.update(STYLE)
    plt.show = lambda *_, **__: None  # the figures of a cell are collected when it ends
    source = script.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(script)}
    results: list[Result] = []
    n_pictures = 0
    for cell in cells(source):
        if cell.text:
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(cell.content, f"{script.name}, cell {len(results)}", "exec"), names)
        pictures = []
        for number in plt.get_fignums():
            figure = plt.figure(number)
            n_pictures += 1
            name = f"{script.stem}-{n_pictures}.png"
            _save(figure, out / name)
            titles = [figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)]
            pictures.append((name, ". ".join(" ".join(words.split()) for words in titles if words) or title(source)))
            plt.close(figure)
        results.append(Result(pictures, printed.getvalue().rstrip()))
    (out / f"{script.stem}.md").write_text(page(source, script.name, results, sum(os.times()[:4])), encoding="utf-8")


def page(source: str, name: str, results: list[Result], seconds: float) -> str:
    """Return the page of a script; the first picture stands under the opening, every other one before its code.

    Args:
        source: the script.
        name: its file name.
        results: what its cells of code left.
        seconds: processor time that it took, with that of its child processes.
    """
    head, *rest = cells(source)
    pictures = [f"![{alt}]({file})" for result in results for file, alt in result.pictures]
    made = f"[`examples/gallery/{name}`](index.md#run-them) made this page in {seconds:.0f} seconds of processor time."
    heading, _, opening = head.content.partition("\n")
    first, _, more = opening.strip().partition("\n\n")
    blocks = [heading, first, pictures[0], more, made]
    left = iter(results)
    for cell in rest:
        if cell.text:
            blocks.append(cell.content)
            continue
        result = next(left)
        blocks += [shown for file, alt in result.pictures if (shown := f"![{alt}]({file})") != pictures[0]]
        blocks.append(f"```python\n{cell.content}\n```")
        if result.printed.strip():
            blocks.append(f"```text\n{result.printed}\n```")
    return "\n\n".join(filter(None, blocks)) + "\n"


def _save(figure: Any, path: Path) -> None:
    """Write a figure as a PNG of few colours."""
    from PIL import Image

    whole = io.BytesIO()
    figure.savefig(whole, format="png")
    Image.open(whole).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
    if path.stat().st_size > PICTURE_BYTES:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, more than {PICTURE_BYTES}: draw less")


def index() -> str:
    """Return the page that shows all others, with the first picture of each."""
    tiles = []
    for script in scripts():
        source = script.read_text(encoding="utf-8")
        name, heading = script.stem, title(source)
        tile = f"-   [![{heading}]({name}-1.png)]({name}.md)\n\n    **[{heading}]({name}.md)**\n\n    {lead(source)}"
        tiles.append(tile)
    return INDEX.replace("TILES", "\n\n".join(tiles))


INDEX = """# Gallery

Every page was written by a script that ran: the pictures and the printed lines are its own.

<div class="grid cards gallery" markdown>

TILES

</div>

## Run them

```console
$ pip install -e '.[images,text,cells,report,onnx,transport,ray,backbones]'
$ python examples/gallery/04_ten_answers.py        # a plain script; in an editor with cells, cell by cell
$ make gallery                                     # all of them, and these pages
```

The scripts use what installs with pip or is generated. Where the environment variable `UNIOT_DATA` names a folder
with [data that does not](../benchmark-data.md), some use that instead, and these pages were made so: photographs of
Office-31 (`office31/office31.tar`), blood cells (`cells/pbmc_three_protocols.npz`) and sentences of BANKING77
(`sentences/banking77_minilm.npz`, CC-BY-4.0). Without it they say what they use in its place. Scores are always
[computed after the fact](../glossary.md#oracle-and-honest): no true label of a target enters a fit or a default.
Answers of a person are simulated by the true label of the sample that was asked about.
"""


def _children_seconds() -> float:
    """Return the processor time of all child processes that have ended."""
    return os.times().children_user + os.times().children_system


def run(chosen: list[Path], out: Path) -> dict[str, float]:
    """Execute scripts, each in a process of its own; return the seconds of each, processor time if that is less."""
    seconds = {}
    for script in chosen:
        with tempfile.TemporaryDirectory() as cache:
            # An empty cache: what a first run takes.
            environment = {**os.environ, "UNIOT_CACHE": cache, "PYTHONHASHSEED": "0"}
            paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
            environment["PYTHONPATH"] = os.pathsep.join(paths)
            started, used = time.perf_counter(), _children_seconds()
            command = [sys.executable, "-W", "ignore", __file__, "--one", str(script), "--out", str(out)]
            done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
            waited, used = time.perf_counter() - started, _children_seconds() - used
            # On two idle cores it takes at most as long as its processor time; on a busy machine it only waits longer.
            seconds[script.stem] = min(waited, used)
        sys.stdout.write(f"{script.stem}: {waited:.0f} s, of which the processor worked {used:.0f} s\n")
        sys.stdout.flush()
        if done.returncode:
            raise SystemExit(f"{script.stem} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return seconds


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Execute the gallery and write its pages.")
    parser.add_argument("names", nargs="*", help="beginnings of names; all scripts if there are none")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if one takes too long")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=PAGES, help="folder for pages and pictures")
    given = parser.parse_args()
    if given.one:
        execute(given.one, given.out)
        return
    chosen = [script for script in scripts() if not given.names or script.name.startswith(tuple(given.names))]
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) if given.check else given.out
        out.mkdir(parents=True, exist_ok=True)
        seconds = run(chosen, out)
        if not given.check:
            (out / "index.md").write_text(index(), encoding="utf-8")
    sys.stdout.write(f"{len(seconds)} scripts in {sum(seconds.values()):.0f} s\n")
    slow = [name for name, took in seconds.items() if took > SECONDS]
    if given.check and (slow or sum(seconds.values()) > ALL_SECONDS):
        raise SystemExit(f"Too slow: {', '.join(slow) or 'all together'}.")


if __name__ == "__main__":
    main()
