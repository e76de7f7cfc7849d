"""What people decided about the target of a run, read from its folder and applied to its answers.

`places.py` numbers where a sample can stand, `file.py` reads labels.sqlite, and `annotations.py` applies it: to the
target itself, and to new samples. The labelling page writes that file; every reader of a run gets it from here.
"""

from uniot.annotations.annotations import Annotations
from uniot.annotations.file import FILE, read_annotations

__all__ = ["FILE", "Annotations", "read_annotations"]
