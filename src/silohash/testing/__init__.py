"""Checks of the contracts of local and federated methods, for the test suites of packages that add methods.

Each check is a callable without arguments that raises `ContractError`. With pytest::

    @pytest.mark.parametrize("check", local_method_checks("contrast"), ids=str)
    def test_contract(check):
        check()
"""

from silohash.testing.check import Check, ContractError
from silohash.testing.federated import federated_method_checks
from silohash.testing.local import local_method_checks

__all__ = ["Check", "ContractError", "federated_method_checks", "local_method_checks"]
