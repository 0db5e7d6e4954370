"""Texts of partition values, by the type of the column: canonical ones, and others."""

from collections.abc import Mapping, Sequence

CANONICAL: Mapping[str, Sequence[str]] = {
    "boolean": ["true", "false"],
    "byte": ["-128", "0", "127"],
    "decimal(5,2)": ["1.50", "0.00", "-0.01", "999.99"],
    "decimal(5,0)": ["1", "-99999"],
    "decimal(2,2)": ["0.15", "-0.99"],
    "date": ["2026-11-20", "0001-01-01", "9999-12-31", "2024-02-29"],
    "timestamp": ["2026-11-20 07:30:00", "2026-11-20 07:30:00.1", "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"],
    "timestamp_ntz": ["2026-11-20 07:30:00", "2026-11-20 07:30:00.000001"],
    # as Java's Double.toString and Float.toString write them, and so Spark
    "double": ["1.5", "-0.0", "0.0", "NaN", "Infinity", "-Infinity", "1.0E7", "9999999.0", "0.001", "1.0E-4",
               "1.7976931348623157E308", "4.9E-324", "1.0E10", "-1.25E-5", "100.0", "0.1"],
    "float": ["1.5", "0.1", "1.0E7", "1.0E-4", "3.4028235E38", "1.4E-45", "NaN", "1.6777216E7"],
    "string": ["1.50", " x ", "20.11.2026"],
}  # fmt: skip
"""Which writers write."""

READ_ALIKE: Mapping[str, Mapping[str, str]] = {
    "boolean": {"TRUE": "true", "False": "false"},
    "integer": {"007": "7", "+7": "7", "-0": "0"},
    "decimal(5,2)": {"01.50": "1.50", "+2.00": "2.00", "-0.00": "0.00", ".50": "0.50"},
    "decimal(5,0)": {"+7": "7"},
    "date": {"2024-1-1": "2024-01-01"},
    "timestamp": {"2024-01-01T00:00:00": "2024-01-01 00:00:00", "2024-01-01": "2024-01-01 00:00:00",
                  "2024-01-01 00:00:00.100": "2024-01-01 00:00:00.1"},
    "timestamp_ntz": {"2024-01-01": "2024-01-01 00:00:00",
                      "2024-01-01 00:00:00.000000000": "2024-01-01 00:00:00",
                      "2024-01-01 00:00:00.120000000": "2024-01-01 00:00:00.12"},
    "double": {"1": "1.0", "1e3": "1000.0", "1.50": "1.5"},
}  # fmt: skip
"""Which all readers take for the same value: each with the canonical text."""

READ_DIFFERENTLY: Mapping[str, Mapping[str, str | None]] = {
    "boolean": {"yes": None, "1": None, "": None, "true ": "true"},
    "byte": {"300": None, "128": None, "-129": None},
    "short": {"32768": None},
    "integer": {"seven": None, "3000000000": None, "7.0": "7", " 7": "7", "": None, "1_000": "1000",
                "\u0667": "7", "1E3": "1000"},
    "long": {"9223372036854775808": None},
    "decimal(5,2)": {"1.5": "1.50", "1E0": "1.00", "1": "1.00", "1.505": None, "12345.00": None, "1000.00": None,
                     "NaN": None, "Infinity": None, "": None, "1.": "1.00", "1E999999999": None, "1E-999999999": None},
    "date": {"20.11.2026": None, "20240101": "2024-01-01", "2024-01-01 00:00:00": "2024-01-01", "0000-01-01": None,
             "10000-01-01": None, "2026-02-30": None, "-0001-01-01": None, "2024-01": None, "2024": None, "": None,
             "2024-01-01 00:00:01": None},
    "timestamp": {"noon": None, "2024-01-01 00:00:00Z": "2024-01-01 00:00:00",
                  "2026-11-20T10:00:00+01:00": "2026-11-20 09:00:00", "2024-01-01 24:00:00": None,
                  "2024-01-01 07:30": "2024-01-01 07:30:00",
                  "2024-01-01 00:00:00+19:00": "2023-12-31 05:00:00", "0001-01-01 00:00:00+01:00": None,
                  "2024-01-01 00:00:60": None, "2024-01-01 00:00:00.1234567": "2024-01-01 00:00:00.123456"},
    "timestamp_ntz": {"2024-01-01 00:00:00Z": None},
    "double": {"1_0": None, "0x1p3": None, "1.5d": None, "inf": None, "nan": None, "infinity": None, "": None},
    "interval": {"1": None},
}  # fmt: skip
"""Which some reader takes for another value, or for none: each with the canonical text of what it may be meant as."""
