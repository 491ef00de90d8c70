"""``vitpos data`` in real processes."""

import json

import pytest

from tests.processes import ENVIRONMENT, vitpos


def test_data_sets_are_listed_fetched_and_verified(tmp_path):
    environment = {**ENVIRONMENT, "VITPOS_CACHE": str(tmp_path)}
    listed = vitpos("data", "list", "--json", env=environment)
    found = {entry["name"]: entry for entry in json.loads(listed.stdout)}
    assert set(found) == {"mnist", "fashion_mnist", "cifar10", "cifar100"} and not listed.stderr
    assert found["mnist"]["here"] and not found["cifar10"]["here"] and found["cifar10"]["sources"]
    assert vitpos("data", "verify", "mnist").stdout == "mnist: matches the published checksums\n"
    (tmp_path / "fashion_mnist").mkdir()
    (tmp_path / "fashion_mnist" / "t10k-labels-idx1-ubyte").write_bytes(b"tampered with")
    wrong = vitpos("data", "verify", "fashion_mnist", env=environment)
    assert wrong.returncode == 1 and "t10k-labels-idx1-ubyte has another md5" in wrong.stdout
    assert "vitpos data get fashion_mnist" in wrong.stderr and "Traceback" not in wrong.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("data", "fetch", "cifar10"), "no 'data fetch'; available: get, list, verify"),
        (("data", "get", "cifar"), "did you mean 'cifar10'?"),
        (("data", "get"), "the data sets to download are missing"),
    ],
)
def test_a_wrong_action_or_name_is_one_line(words, message):
    done = vitpos(*words)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
