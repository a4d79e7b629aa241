"""Runs the script in the arguments as a program of its own would run.

What it prints is the answer. One that raises ends with code 1 and its traceback
on standard error, which the fleet puts behind what was printed before.
"""

import json
import linecache
import os
import sys
import traceback
import types

NAME = "script.py"

code = json.load(sys.stdin)["code"]
# The script is no file; this is where a traceback looks for its lines.
linecache.cache[NAME] = (len(code), None, code.splitlines(keepends=True), NAME)
sys.stdin = open(os.devnull)
sys.argv = [NAME]
sys.modules["__main__"] = main = types.ModuleType("__main__")

try:
    exec(compile(code, NAME, "exec"), main.__dict__)
except (Exception, KeyboardInterrupt) as error:
    # Without the frame above, which is none of the script's business.
    traceback.print_exception(error.with_traceback(error.__traceback__.tb_next))
    sys.exit(1)
