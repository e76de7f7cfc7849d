"""The page on which people name the new groups, and the table of names that comes of it.

`names.py` reads and writes that table. `state.py` holds the labels, `planning.py` says what an action changes,
`store.py` keeps it and `desk.py` sees to all three. `geometry.py` knows what looks alike, `views.py` what the page
shows, `app.py` answers requests, `guard.py` says whose, and `server.py` runs it all. `exporting.py` writes the table,
and `named_collections.py` makes of it what the next run learns from.
"""

from uniot.labelling.names import Names, read_names, write_names

__all__ = ["Names", "read_names", "write_names"]
