"""The page on which people name the new groups, and the files that come of it.

`names.py` reads and writes labels.csv. `state.py` holds the labels, `planning.py` says what an action changes,
`store.py` keeps it and `desk.py` sees to all three. `geometry.py` knows what looks alike, `spreading.py` what follows a
labelled sample and which to label next. `views.py` says what the page shows, `app.py` answers requests, `guard.py` says
whose, and `server.py` runs it all. `publishing.py` keeps the tables of the run folder up to date, `exporting.py`,
`formats.py` and `importing.py` talk to other tools, and `named_collections.py` makes of labels.csv what the next run
learns from.
"""

from uniot.labelling.names import Names, read_names, write_names

__all__ = ["Names", "read_names", "write_names"]
