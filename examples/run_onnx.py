"""Ask an exported run about images, with onnxruntime, NumPy and Pillow alone.

uniot export run/ --out model.onnx
python examples/run_onnx.py model.onnx photo.jpg another.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def prepare(path: str, resize: int, crop: int, interpolation: str, mode: str) -> np.ndarray:
    """The pixels of an image, (3, crop, crop), as the run saw its own."""
    image = Image.open(path)
    image.draft(None, (2 * resize, 2 * resize))  # decodes a large JPEG at a fraction of its size, as uniot does
    layer = ImageOps.exif_transpose(image).convert("RGBA")
    image = Image.new("RGB", layer.size, "white")  # what is transparent becomes white
    image.paste(layer, mask=layer)
    shorter = min(image.size)
    width, height = (int(resize * side / shorter) if mode == "centre" else resize for side in image.size)
    left, top = round((width - crop) / 2), round((height - crop) / 2)
    # Resizes all of the image and cuts a square from its middle, in one step.
    across, down = image.width / width, image.height / height
    right, bottom = min((left + crop) * across, image.width), min((top + crop) * down, image.height)
    box = (left * across, top * down, right, bottom)
    return np.asarray(image.resize((crop, crop), Image.Resampling[interpolation.upper()], box)).transpose(2, 0, 1)


def main(model: str, *images: str) -> None:
    session = onnxruntime.InferenceSession(Path(model).read_bytes())
    about = session.get_modelmeta().custom_metadata_map
    if about.get("preparation", "null") == "null":
        sys.exit(f"{model} takes no images: it was exported from a run that was not made from images.")
    classes, unknown, steps = (json.loads(about[key]) for key in ("classes", "unknown", "preparation"))
    pixels = np.stack([prepare(path, **steps) for path in images])
    names = ["nearest", "known", "confidence", "group"]
    for path, nearest, known, confidence, group in zip(images, *session.run(names, {"pixels": pixels}), strict=True):
        label = classes[nearest] if known else unknown if group < 0 else f"{unknown}, group {group}"
        print(f"{path}: {label} (confidence {confidence:.3f}, nearest class {classes[nearest]})")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("Usage: python examples/run_onnx.py model.onnx photo.jpg another.png …")
    try:
        main(*sys.argv[1:])
    except OSError as error:  # a file that is not there, or no image
        sys.exit(f"Error: {error}")
