"""A recorded episode or run as a page: one HTML file that needs no server, no network and no installation.

* ``format``: the recording, a documented and versioned JSON document that other libraries can write as well;
* ``names``, ``frames``, ``episodes``: an episode of a learner, recorded;
* ``sources``: what a path holds (a run, a recording, a ``reproduce`` folder, a benchmark report) as such documents;
* ``page``: the documents and the built viewer as one file; ``server``: the same on 127.0.0.1, following a run.

Imports the rooms to its left (``agents`` to ``studies``), never the command line. Start with ``episodes.record``.
"""
