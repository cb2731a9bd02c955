"""The contract as a test that any method can be put through, your own too.

::

    from glocal.testing import check_method

    def test_my_method():
        check_method(Method(local=MyLocal()))

A method that passes runs on every engine alike, can be saved and resumed, keeps what is private
with the clients, and gives the same result for the same seed.
"""

from glocal.testing.contract import check_method
from glocal.testing.trained import SIZES, ragged

__all__ = ["SIZES", "check_method", "ragged"]
