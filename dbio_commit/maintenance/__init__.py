"""Operations on a whole table: check, vacuum, compact, publish, report, copy, restore, adopt and drop it."""
