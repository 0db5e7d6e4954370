"""VACUUM: deletes what no reader needs. Room for its own issue; `plan`, `run` and `schedule` will live here."""
