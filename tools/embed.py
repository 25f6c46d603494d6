#!/usr/bin/python3
"""Writes a header that holds a file's bytes: embed.py INPUT OUTPUT NAME."""

import sys

with open(sys.argv[1], "rb") as f:
    data = f.read()
lines = [", ".join(str(b) for b in data[i:i + 20]) + "," for i in range(0, len(data), 20)]
with open(sys.argv[2], "w", encoding="ascii") as f:
    f.write("#pragma once\n\n")
    f.write(f"alignas(16) inline constexpr unsigned char {sys.argv[3]}[] = {{\n")
    f.write("\n".join(lines) + "\n};\n")
