"""Ports for the lab: no two processes choose the same one, and no process chooses one twice."""

import os
import socket
import subprocess
import sys

import pytest

from watershed.lab import free_ports
from watershed.lab.errors import LabError
from watershed.lab.free_ports import find_free_ports

_ASK = """
import sys
from watershed.lab.free_ports import find_free_ports
print(*find_free_ports(150), flush=True)
sys.stdin.read()
"""


def test_processes_that_run_choose_different_ports() -> None:
    asked = [
        subprocess.Popen([sys.executable, "-c", _ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    chosen = find_free_ports(150)
    for process in asked:
        assert process.stdout is not None
        chosen += map(int, process.stdout.readline().split())
    for process in asked:
        process.communicate()
        assert process.returncode == 0
    assert len(chosen) == 600
    assert len(set(chosen)) == 600


def test_a_fork_chooses_other_ports_than_its_parent() -> None:
    find_free_ports(1)
    (reading, writing), (heard, told) = os.pipe(), os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, f"{' '.join(map(str, find_free_ports(20)))}\n".encode())
        os.read(heard, 1)  # its ports are free again when it ends
        os._exit(0)
    with os.fdopen(reading) as answer:
        of_child = set(map(int, answer.readline().split()))
    of_parent = set(find_free_ports(200))
    os.write(told, b"!")
    assert os.waitpid(child, 0)[1] == 0
    for pipe in (writing, heard, told):
        os.close(pipe)
    assert len(of_child) == 20
    assert not of_child & of_parent


def test_a_port_that_somebody_listens_on_is_passed_over() -> None:
    [first] = find_free_ports(1)
    with socket.create_server(("127.0.0.1", first + 1)):
        assert first + 1 not in find_free_ports(3)


def test_all_ports_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_ports, "_RESERVED", free_ports._Reserved(os.getpid()))
    monkeypatch.setattr(free_ports, "_reserve", lambda start: False)
    with pytest.raises(LabError, match=r"no free ports on 127\.0\.0\.1 between 20000 and 30000: .* end some of them"):
        find_free_ports(1)
