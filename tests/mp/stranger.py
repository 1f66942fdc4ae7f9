#!/usr/bin/env python3
"""A process of another user that asks data-plane ports for a connection as libfabric's rxm does, and writes to all slots.

  stranger.py PORT...    ports of 127.0.0.1 or of this host's other addresses, as ADDRESS:PORT

Prints how many have taken it. It knows all but the job's secret. Exit status: 0.
"""

import os
import socket
import struct
import sys

OTHER_USER = 65534
# libfabric 1.17: a control header, version 3, a request of 24 bytes; then rxm's request.
REQUEST = struct.pack(">BBHI", 3, 0, 24, 0) + struct.pack("<QQQ", 0, 0, 1) + struct.pack("<BBBBHBBIIQ", 1, 2, 4, 3, 1, 0, 0, 16384, 64, 0)
TAKEN = 1


def immediate(slot):
    """A write to no place, with data for the channel `slot`."""
    return struct.pack("<BBHBBBBQQ", 3, 4, 1, 0, 0, 24, 0, 24, slot << 16)


def is_taken_by(address, port, times=20):
    """Asks so often, and says to all slots what it can, whatever the answer is."""
    for _ in range(times):
        try:
            with socket.socket() as connection:
                connection.settimeout(2)
                connection.connect((address, port))
                connection.sendall(REQUEST)
                answer = connection.recv(32)
                connection.sendall(b"".join(immediate(slot) for slot in range(1 << 16)))
                if len(answer) > 1 and answer[1] == TAKEN:
                    return True
        except OSError:
            continue
    return False


def become_another_user():
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(OTHER_USER, OTHER_USER, OTHER_USER)
        os.setresuid(OTHER_USER, OTHER_USER, OTHER_USER)


if __name__ == "__main__":
    become_another_user()
    targets = [word.rsplit(":", 1) for word in sys.argv[1:]]
    print(f"taken by {sum(is_taken_by(address, int(port)) for address, port in targets)}")
