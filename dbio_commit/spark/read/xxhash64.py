"""Computes Spark's `xxhash64` of a text, so that a driver knows without a query what tasks compute. Pure."""

import struct

_ONE, _TWO, _THREE = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_FOUR, _FIVE = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_ALL = (1 << 64) - 1
_SEED = 42


def xxhash64(text: str) -> int:
    """XXH64 of the text in UTF-8, with Spark's seed, as a signed number."""
    data = text.encode()
    stripes, words = len(data) // 32 * 32, len(data) // 8 * 8
    found = _striped(data[:stripes]) if stripes else _SEED + _FIVE
    found = (found + len(data)) & _ALL
    for (word,) in struct.iter_unpack("<Q", data[stripes:words]):
        found = (_turned(found ^ _round(0, word), 27) * _ONE + _FOUR) & _ALL
    rest = data[words:]
    if len(rest) >= 4:
        found = (_turned(found ^ (int.from_bytes(rest[:4], "little") * _ONE & _ALL), 23) * _TWO + _THREE) & _ALL
        rest = rest[4:]
    for byte in rest:
        found = _turned(found ^ (byte * _FIVE & _ALL), 11) * _ONE & _ALL
    found = (found ^ found >> 33) * _TWO & _ALL
    found = (found ^ found >> 29) * _THREE & _ALL
    found ^= found >> 32
    return found - (1 << 64) if found >> 63 else found


def _striped(data: bytes) -> int:
    lanes = [_SEED + _ONE + _TWO, _SEED + _TWO, _SEED, _SEED - _ONE]
    for stripe in struct.iter_unpack("<4Q", data):
        lanes = [_round(lane, word) for lane, word in zip(lanes, stripe, strict=True)]
    found = sum(_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _ALL
    for lane in lanes:
        found = ((found ^ _round(0, lane)) * _ONE + _FOUR) & _ALL
    return found


def _round(before: int, word: int) -> int:
    return _turned((before + word * _TWO) & _ALL, 31) * _ONE & _ALL


def _turned(number: int, by: int) -> int:
    """The 64 bits, rotated to the left."""
    return (number << by | number >> 64 - by) & _ALL
