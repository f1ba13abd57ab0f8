"""The first signal asks, the second insists; handlers are put back."""

import signal
import threading

import pytest

from recollect.store.interrupts import Interrupts


def test_the_first_asks_and_the_second_insists(capfd):
    before = signal.getsignal(signal.SIGINT)
    with Interrupts(exits=False) as interrupts:
        assert not interrupts.asked.is_set()
        signal.raise_signal(signal.SIGTERM)
        assert interrupts.asked.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert "once more to stop at once" in capfd.readouterr().err


def test_another_thread_watches_nothing():
    found = []

    def work():
        with Interrupts() as interrupts:
            found.append((interrupts.asked.is_set(), interrupts._before))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(False, {})]
