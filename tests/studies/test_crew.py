"""Threads that report, and what happens when they are told to stop."""

import threading

from recollect.studies import crew


def test_being_told_to_stop_is_noticed_though_no_thread_reports(monkeypatch):
    """As when a signal comes just as Python begins to wait: nothing wakes it then."""
    monkeypatch.setattr(crew, "PATIENCE", 0.2)
    stop, never = threading.Event(), threading.Event()

    def begin():
        never.wait(60)
        yield from ()

    threading.Timer(0.2, stop.set).start()
    assert list(crew.reports([crew.Task("a", "k", begin)], stop, every=60.0)) == []
    assert stop.is_set()
    never.set()
