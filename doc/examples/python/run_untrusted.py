#!/usr/bin/python3
"""Runs Python code that nobody trusts, through libnsbox by ctypes.

    run_untrusted.py FILE [SECONDS]

The code sees Python and nothing of yours: no files, no network, no variables. What it prints is printed, and it is
ended after so many seconds (default 10).
"""

import ctypes
import json
import sys

nsbox = ctypes.CDLL("libnsbox.so.0")
for name, result, arguments in (
        ("nsbox_command_new", ctypes.c_void_p, [ctypes.POINTER(ctypes.c_char_p), ctypes.c_size_t]),
        ("nsbox_command_free", None, [ctypes.c_void_p]),
        ("nsbox_sandbox_create", ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p]),
        ("nsbox_sandbox_free", None, [ctypes.c_void_p]),
        ("nsbox_write_file", ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t,
                                            ctypes.c_uint, ctypes.c_void_p]),
        ("nsbox_run_in", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]),
        ("nsbox_outcome_output", ctypes.c_void_p, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]),
        ("nsbox_outcome_error", ctypes.c_void_p, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]),
        ("nsbox_outcome_status", ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p]),
        ("nsbox_outcome_free", None, [ctypes.c_void_p]),
        ("nsbox_error_message", ctypes.c_char_p, [ctypes.c_void_p]),
        ("nsbox_error_free", None, [ctypes.c_void_p])):
    function = getattr(nsbox, name)
    function.restype, function.argtypes = result, arguments


class Status(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("code", ctypes.c_int32), ("signal", ctypes.c_int32),
                ("reason", ctypes.c_int32), ("shell_code", ctypes.c_int32), ("user_us", ctypes.c_uint64),
                ("system_us", ctypes.c_uint64), ("max_rss_kib", ctypes.c_uint64)]


class RunOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("input", ctypes.c_char_p), ("input_size", ctypes.c_size_t),
                ("milliseconds", ctypes.c_int64), ("most", ctypes.c_size_t)]


class NsboxError(Exception):
    pass


def call(function, *arguments):
    """The result of a function that may fail, whose last parameter is the error."""
    error = ctypes.c_void_p()
    result = function(*arguments, ctypes.byref(error))
    if result in (None, -1):
        message = nsbox.nsbox_error_message(error).decode()
        nsbox.nsbox_error_free(error)
        raise NsboxError(message)
    return result


class Sandbox:
    """For any number of commands; to be used with `with`."""

    def __init__(self, **document):
        text = json.dumps({"version": 1, **document}).encode()
        self.handle = call(nsbox.nsbox_sandbox_create, text, len(text))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        nsbox.nsbox_sandbox_free(self.handle)

    def write(self, path, content):
        call(nsbox.nsbox_write_file, self.handle, path.encode(), content, len(content), 0o644)

    def run(self, *words, seconds=0):
        """(the status as a shell has it, output, errors)."""
        argv = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
        command = nsbox.nsbox_command_new(argv, len(words))
        options = RunOptions(ctypes.sizeof(RunOptions), None, 0, int(seconds * 1000), 0)
        try:
            outcome = call(nsbox.nsbox_run_in, self.handle, command, ctypes.byref(options))
        finally:
            nsbox.nsbox_command_free(command)
        try:
            status = Status(ctypes.sizeof(Status))
            nsbox.nsbox_outcome_status(outcome, ctypes.byref(status))
            streams = []
            for stream in (nsbox.nsbox_outcome_output, nsbox.nsbox_outcome_error):
                size = ctypes.c_size_t()
                streams.append(ctypes.string_at(stream(outcome, ctypes.byref(size)), size.value))
            return status.shell_code, *streams
        finally:
            nsbox.nsbox_outcome_free(outcome)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    with open(sys.argv[1], "rb") as file:
        code = file.read()
    with Sandbox(memory=512 << 20, pids=64, **{"best-effort": True}) as sandbox:
        sandbox.write("code.py", code)
        status, output, errors = sandbox.run("python3", "code.py", seconds=float((sys.argv + ["10"])[2]))
    sys.stdout.buffer.write(output)
    sys.stderr.buffer.write(errors)
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NsboxError as problem:
        sys.exit(f"run_untrusted.py: {problem}")
