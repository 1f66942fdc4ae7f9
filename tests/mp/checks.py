"""Shared parts of the cases of this folder: running programs, expectations."""

import math
import os
import re
import subprocess


class Skip(Exception):
    """A requirement of the case is missing."""


class Failed(Exception):
    """An expectation failed; the text has the expected and the actual result."""


def expect(condition, what, output=""):
    if not condition:
        raise Failed(f"{what}\n{output}")


def system(*command, env=None, status=0, seconds=240):
    """Output of a command that ends with `status`, in time. `env` is added to ours; None removes a variable."""
    variables = {name: value for name, value in {**os.environ, **(env or {})}.items() if value is not None}
    result = subprocess.run([str(word) for word in command], env=variables, stdin=subprocess.DEVNULL, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, check=False)
    expect(result.returncode == status, f"{' '.join(map(str, command))}: status {result.returncode}, not {status}",
           result.stdout)
    return result.stdout


def instructions_of(*command, options=(), env=None):
    """Output of a command under callgrind, and how many instructions it executed there."""
    # Fair: without it a thread that spins keeps valgrind's lock while the thread that it waits for sleeps before it, on free
    # cores for minutes.
    output = system("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--fair-sched=yes", *options, *command, env=env, seconds=600)
    return output, int(re.search(r"Collected : (\d+)", output)[1])


def expect_few_more(count_plain, count_ours, most):
    """Our count exceeds the plain one by no more than the share `most`: the least of up to six runs, as some wait longer."""
    plain = ours = math.inf
    for _ in range(6):
        plain, ours = min(plain, count_plain()), min(ours, count_ours())
        if ours <= (1 + most) * plain:
            break
    print(f"{plain} instructions, with us {ours}, {100 * (ours / plain - 1):+.3f} %")
    expect(ours <= (1 + most) * plain, f"more than {100 * most} % more instructions")
