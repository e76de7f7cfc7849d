"""Write docs/figures/report.png, the picture of a report in README.md.

    uniot demo --out runs/demo
    python docs/make_screenshot.py runs/demo/report.html

Needs playwright and a Chromium on the path, or its address in the environment variable CHROMIUM. The picture has a
palette of 128 colours, so that it stays small.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).parent / "figures" / "report.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MOST_BYTES = 300_000
WIDTH = 1360
# A container may have no system font, and would take one with serifs.
FONT = "body, button, input, select, svg text { font-family: Arial, 'Liberation Sans', sans-serif !important; }"


def screenshot(page_file: Path) -> bytes:
    """Return the top of a report down to the end of its map, as PNG."""
    browser_path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser_path is None:
        sys.exit(f"none of {', '.join(BROWSERS)} is on the path. Install one, or set CHROMIUM to its address.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 1700}, color_scheme="light")
        page.goto(page_file.resolve().as_uri())
        page.add_style_tag(content=FONT)
        # The map is drawn after the page has loaded.
        page.wait_for_timeout(3000)
        bottom = page.evaluate("(document.querySelector('#map') ?? document.body).getBoundingClientRect().bottom")
        taken = page.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": min(float(bottom), 1700)})
        browser.close()
    return taken


def main() -> None:
    """Take the picture and write it with a small palette."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    image = Image.open(io.BytesIO(screenshot(Path(sys.argv[1])))).convert("RGB")
    image.quantize(128, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
    if PICTURE.stat().st_size >= MOST_BYTES:
        sys.exit(f"{PICTURE} has {PICTURE.stat().st_size} bytes. Take a smaller part, or fewer colours.")


if __name__ == "__main__":
    main()
