import os

import pytest

from mistify_client.finalizing import close_with


class Owner:
    pass


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # that is what is tested
def test_only_the_process_that_opened_something_closes_it():
    closed = []
    owner = Owner()
    close_with(owner, lambda: closed.append(os.getpid()))
    if (child := os.fork()) == 0:
        del owner
        os._exit(len(closed))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    del owner
    assert closed == [os.getpid()]
