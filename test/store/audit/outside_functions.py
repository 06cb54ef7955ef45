"""Canonical JSON, digests and random numbers, by docs/records.md alone."""
import hashlib
import json
import math
import struct
from decimal import Decimal
from functools import cache


def number(value):
    """The number as ECMAScript prints it."""
    if isinstance(value, int) or value == 0:
        return str(int(value))
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    point = len(digits) + exponent
    minus = "-" if sign else ""
    if len(text) <= point <= 21:
        return minus + text + "0" * (point - len(text))
    if 0 < point <= 21:
        return f"{minus}{text[:point]}.{text[point:]}"
    if -6 < point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    rest = f".{text[1:]}" if len(text) > 1 else ""
    return f"{minus}{text[0]}{rest}e{'+' if point > 0 else '-'}{abs(point - 1)}"


def canonical(value):
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return f"[{','.join(map(canonical, value))}]"
    names = sorted(value, key=lambda name: name.encode("utf-16-be"))
    return "{" + ",".join(f"{canonical(name)}:{canonical(value[name])}" for name in names) + "}"


def sha(data):
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def digest(record):
    return sha(canonical({name: part for name, part in record.items() if name != "observed"}))


def sha_list(digests):
    return sha("".join(f"{one}\n" for one in digests))


# Random numbers: see "Planning" in docs/records.md.
MASK = 0xFFFFFFFF


def rotl(value, by):
    return ((value << by) | (value >> (32 - by))) & MASK


def hash32(*parts):
    h = 0x9E3779B9
    words = []
    for part in parts:
        if isinstance(part, str):
            units = part.encode("utf-16-le")
            words += struct.unpack(f"<{len(units) // 2}H", units)
            words.append(len(units) // 2 | 0x80000000)
        else:
            words += [part & MASK, (part >> 32) & MASK]
    for word in words:
        k = rotl(word * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
        h = (rotl(h ^ k, 13) * 5 + 0xE6546B64) & MASK
    h = (h ^ h >> 16) * 0x85EBCA6B & MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & MASK
    return h ^ h >> 16


def uniform(*parts):
    return hash32(*parts) / 2**32


@cache
def order(n, of):
    places, base = list(range(n)), hash32(of)
    for i in range(n - 1, 0, -1):
        j = math.floor(uniform(base, i) * (i + 1))
        places[i], places[j] = places[j], places[i]
    return places
