"""A program that does, in order, what its arguments say: the Python one of four that agree."""

import os
import signal
import subprocess
import sys
import time


def put(descriptor, data):
    while data:
        data = data[os.write(descriptor, data) :]


def hop():
    """Be somebody else's child all the time."""
    if os.fork():
        return
    os.setsid()
    while True:
        time.sleep(0.001)
        if os.fork():
            os._exit(0)


def act(name, *values):  # noqa: C901, PLR0912
    if name == "read":
        while (byte := os.read(0, 65536)) and not byte.endswith(b"\n"):
            pass
    elif name == "out":
        put(1, bytes.fromhex(values[0]) * int(values[1]))
    elif name == "err":
        put(2, bytes.fromhex(values[0]) * int(values[1]))
    elif name == "flood":
        while True:
            put(int(values[0]), b"x" * 65536)
    elif name == "drip":
        while True:
            put(1, b"x")
            time.sleep(0.01)
    elif name == "sleep":
        time.sleep(int(values[0]) / 1000)
    elif name == "exit":
        os._exit(int(values[0]))
    elif name == "kill":
        os.kill(os.getpid(), int(values[0]))
    elif name == "deaf":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    elif name == "close":
        os.close(int(values[0]))
    elif name == "daemon":
        subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
    elif name == "hop":
        hop()
    elif name == "burst":
        for _ in range(int(values[0])):
            subprocess.Popen(["/bin/sleep", "60"])
        time.sleep(60)
    elif name == "memory":
        held = [bytearray(b"x") * (1 << 20) for _ in range(int(values[0]))]
        assert held
    elif name == "file":
        with open("large", "wb") as file:
            file.write(b"x" * int(values[0]))
    elif name == "files":
        held = [os.open("/dev/null", os.O_RDONLY) for _ in range(int(values[0]))]
        assert held


for word in sys.argv[1:]:
    act(*word.split(":"))
