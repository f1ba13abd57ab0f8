"""What lies on disk: files written whole or not at all, locks, checkpoints, run folders, and where they come from.

Start with ``files``: everything that recollect writes goes through a ``Folder`` there, which follows no links. On it
stand ``checkpoints`` (named arrays and a little JSON, checked when read), ``lock`` (one process at a time, by filelock)
and ``run_folders`` (config, status, metrics, log and checkpoints of one run, as it is written); ``run_reading`` reads
such folders without trusting them. ``trees`` turns pytrees into named arrays, ``provenance`` says what made a result
and what differs, ``interrupts`` turns Ctrl-C into a question. The room knows arrays and JSON, and neither agents nor
environments: it imports only ``errors`` and ``prng``.
"""
