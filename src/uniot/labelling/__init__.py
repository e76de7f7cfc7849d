"""Label the new groups of a run: names of samples, labels.csv, and the page that people work on (`uniot label`).

`names` reads and writes labels.csv, `next_run` makes the collections of the next run from it; neither needs a web
package. Of the page, `samples` is what people label, `actions` are what they can do, `state` is what actions change,
`store` keeps it on disk, and `session` connects them. `gallery` orders images, `propagation` spreads single labels,
`exporting` and `parsing` write and read the files of other tools; `app`, `security` and `server` are the web server.
"""

from __future__ import annotations

from uniot.labelling.names import Names, clean_name, read_names, write_names
from uniot.labelling.next_run import NamedRows, named_rows

__all__ = [
    "NamedRows",
    "Names",
    "clean_name",
    "named_rows",
    "read_names",
    "write_names",
]
