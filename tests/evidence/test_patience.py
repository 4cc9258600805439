"""What lasts too long ends, and what does not is left alone."""

import signal
import time

import pytest

from evidence.mutants.hunt import OutOfTimeError, at_most


def test_what_lasts_longer_is_ended():
    with pytest.raises(OutOfTimeError, match="no end after 1 s"), at_most(1):
        time.sleep(30)


def test_a_handler_of_other_errors_does_not_take_it():
    with pytest.raises(OutOfTimeError), at_most(1):
        try:
            time.sleep(30)
        except Exception:
            pytest.fail("taken for an error of what was interrupted")


def test_afterwards_the_alarm_is_as_it_was():
    before = signal.getsignal(signal.SIGALRM)
    with at_most(60):
        assert signal.getsignal(signal.SIGALRM) is not before
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.alarm(0) == 0
