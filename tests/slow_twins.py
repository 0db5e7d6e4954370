"""Cases of tests that are left to `make test-long`, since `make test` runs others of the same test."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

_T = TypeVar("_T")

SLOW_TWINS = {
    "test_2500_objects_in_nested_directories_are_deleted_by_batches": {"azure", "gcs"},
    "test_2500_objects_are_listed_and_deleted": {"azure", "gcs", "s3"},
    "test_2500_objects_are_listed_by_directory": {"azure", "gcs", "s3"},
    "test_the_descriptor_and_the_turns_cost_the_same_beside_pages_of_other_markers": {"azure", "gcs"},
    "test_two_neighbours_are_looked_for_by_one_request_beside_1100_turns": {"azure", "gcs"},
    "test_an_unreachable_service_is_a_store_error_within_seconds": {"azure", "gcs"},
    "test_a_busy_service_is_a_store_error_with_the_url_and_the_next_step": {"s3"},
    "test_pages_make_no_difference": {"azure-1", "azure-10", "gcs-1", "gcs-10", "s3-1"},
    "test_no_object_has_anything_of_the_rows": {"azure", "gcs"},
    "test_rows_change_on_the_store": {"azure", "gcs"},
    "test_the_command_line_compacts_and_writes_a_report": {"azure", "gcs"},
    "test_a_directory_is_left_with_its_live_files": {"azure", "gcs"},
    "test_a_table_is_left_with_its_live_files_and_the_log_that_must_stay": {"azure", "gcs"},
    "test_deletions_that_the_service_throttles_are_asked_for_again": {"azure", "gcs"},
    "test_on_azure_a_vacuum_costs_what_its_bulk_deletions_do_and_30_besides": {"1-300-1", "2-8-2"},
    "test_a_vacuum_costs_a_request_for_each_thousand_objects_and_30_besides_however_many_directories_there_are": {
        "1-300-1",
        "1-40-1",
        "2-4-2",
        "3-4-1",
    },
    "test_executors_list_the_partitions_and_delete": {"local"},
    "test_a_stream_of_changes_has_them_row_by_row": {"True"},
    "test_the_fuzzer_finds": {
        "a path outside the table, in one kind of marker",
        "a query where a value is expected",
        "metadata that an engine evaluates",
        "too much memory",
    },
    "test_random_conditions_delete_what_sparks_own_filter_finds": {"False"},
    "test_a_worker_stays_below_one_gigabyte": {"1-1000000-32-25-3", "100-1000-100-60-300", "4-20-10000-250-2000"},
    "test_every_example_of_a_document_does_what_it_says": {"STREAMS.md"},
    "test_deletions_that_keep_failing_are_reported_one_by_one_and_done_by_the_next_run": {"azure", "s3"},
    "test_of_a_writer_killed_at_any_call_all_or_nothing_is_seen_and_the_next_one_works": {
        "gcs-append",
        "gcs-overwrite",
        "gcs-replace",
        "gcs-restore",
        "gcs-rewrite",
        "s3-append",
        "s3-overwrite",
        "s3-replace",
        "s3-restore",
        "s3-rewrite",
    },
    "test_of_a_spark_job_killed_at_a_step_all_or_nothing_is_seen_and_a_repetition_works": {
        "begun",
        "writing",
        "written",
    },
    "test_of_a_spark_job_killed_in_part_all_or_nothing_is_seen_and_a_repetition_works": {"JVM", "driver", "workers"},
    "test_a_vacuum_with_spark_does_and_reports_the_same": {
        "local-make_directory",
        "local-make_table",
        "s3-make_directory",
    },
    "test_the_command_line_deletes_what_its_dry_run_says": {"azure", "s3"},
    "test_all_commands_work_with_the_credentials_of_the_environment": {"azure", "gcs"},
    "test_ten_processes_write_at_once_and_no_row_is_lost_or_doubled": {"gcs-5", "s3-5"},
    "test_small_files_become_one_in_each_partition": {
        "azure-none",
        "azure-sort",
        "azure-z",
        "gcs-none",
        "gcs-sort",
        "s3-sort",
    },
    "test_few_files_and_those_of_other_partitions_stay": {"azure", "gcs"},
    "test_few_files_are_written_and_small_ones_put_together_on_the_store": {"azure", "gcs"},
    "test_a_dry_run_says_what_would_be_done_and_changes_nothing": {
        "make_directory-azure",
        "make_directory-local",
        "make_directory-s3",
        "make_table-azure",
        "make_table-gcs",
    },
    "test_of_many_processes_that_create_one_table_exactly_one_wins": {"2"},
    "test_many_processes_that_append_to_a_table_which_is_not_there_yet_all_write_to_the_same": {"2"},
    "test_a_random_merge_is_what_duckdb_makes_of_it": {"4", "5", "6", "7"},
    "test_a_rebuild_gives_the_same_state_or_refuses_whichever_object_is_lost": {"1", "2", "5", "6"},
    "test_a_commit_that_comes_after_its_abort_was_purged_is_refused_whatever_the_clocks_say": {
        "clock far behind-tiny-parts",
        "paused-tiny-parts",
        "started again, clock behind-tiny-parts",
    },
    "test_a_commit_whose_abort_is_purged_between_the_look_and_the_put_is_withdrawn": {"tiny-parts"},
    "test_a_commit_that_can_not_be_withdrawn_is_no_success_and_the_error_says_what_to_do": {"tiny-parts"},
    "test_exactly_one_of_many_processes_creates_a_large_object": {"azure", "gcs"},
    "test_exactly_one_of_many_processes_creates_an_empty_object": {"azure", "gcs"},
    "test_versions_by_the_commits_since_are_those_of_comparisons_as_a_whole": {
        "10-one-body",
        "10-tiny-parts",
        "11-one-body",
        "11-tiny-parts",
        "12-one-body",
        "12-tiny-parts",
        "13-one-body",
        "13-tiny-parts",
        "14-one-body",
        "14-tiny-parts",
        "15-one-body",
        "15-tiny-parts",
        "6-one-body",
        "6-tiny-parts",
        "7-one-body",
        "7-tiny-parts",
        "8-one-body",
        "8-tiny-parts",
        "9-one-body",
        "9-tiny-parts",
    },
    "test_a_writer_of_ours_and_an_adoption_that_overlap_lose_nothing": {
        "delete all",
        "give up",
        "overwrite",
        "replace",
    },
    "test_no_golden_directory_gets_a_traceback_out_of_a_command": {"abort", "log", "show"},
    "test_a_state_of_the_past_is_that_of_the_same_table_in_one_body": {"1", "2", "3", "4", "6"},
    "test_the_history_of_a_large_table_is_that_of_the_same_table_in_one_body": {"1", "2", "3", "4", "6"},
    "test_a_vacuum_that_is_killed_hurts_nobody_and_the_next_does_the_rest": {"make_directory"},
    "test_columns_keep_their_values": {
        "year=1999/COUNTRY=de-['country']",
        "year=1999/COUNTRY=de-['day']",
        "year=1999/COUNTRY=de-['year', 'country']",
        "year=1999/COUNTRY=de-[]",
    },
    "test_a_table_with_parts_is_written_and_read_as_any_other": {"conditional write", "delete", "overwrite", "update"},
    "test_no_writer_evaluates_what_is_more_than_an_expression": {
        "default.note '${spark.dbio_test.secret}'",
        "default.note ((((((((((((((((((((((((((((((",
        "generated.note concat(java_method('java.lang.",
    },
    "test_what_a_marker_counts_for_is_about_what_it_takes_in_memory": {
        "many metrics",
        "many partitions",
        "many settings",
        "many short paths",
        "of another writer",
        "paths of many letters",
        "rows that nobody counted",
        "whole files",
    },
    "test_a_copy_has_the_rows_and_every_state": {"azure-", "azure-published"},
    "test_untracked_files_go_only_where_they_are_asked_for": {"azure", "gcs"},
    "test_nothing_young_goes_but_what_no_commit_names": {"azure", "gcs"},
    "test_files_of_narrower_types_are_read_as_the_wider_one_flat_and_nested": {
        "decimal(5,2)-decimal(18,4)--999.99-0.01",
        "decimal(5,2)-decimal(9,4)--999.99-0.01",
        "float-double--1.5-3.25",
    },
    "test_a_writer_that_a_checkpoint_and_a_purge_overtake_writes_the_same": {
        "append once",
        "append with another schema",
    },
    "test_a_writer_that_wakes_at_any_call_of_a_vacuum_hurts_nobody": {"again"},
    "test_a_chain_that_is_merged_as_planned_says_the_same": {"limits0"},
    "test_a_copy_of_a_table_with_parts_has_the_same_history": {"10", "11", "12", "13", "14", "6", "7", "8", "9"},
    "test_a_table_with_parts_has_the_same_report": {"10", "11", "12", "13", "14", "6", "7", "8", "9"},
    "test_a_stream_reads_the_same_whatever_the_form_of_the_table": {"1", "2", "3", "4", "6"},
    "test_all_modes_work_on_the_store": {"gcs"},
    "test_the_data_source_works_on_the_store": {"azure", "gcs"},
    "test_a_commit_that_the_store_refuses_commits_nothing": {},
    "test_whoever_acts_between_two_calls_of_a_vacuum_loses_nothing": {"abort", "append", "checkpoint"},
    "test_two_vacuums_at_once_do_no_harm": {"pause1-garbage", "pause1-queued", "pause2-garbage", "pause2-queued"},
    "test_a_table_may_lie_at_an_odd_path": {"%41", "_under", "a b", "a:b", "new\\nline", "x=1"},
    "test_ranges_of_keys_hold_all_of_them": {"byte", "int", "short"},
    "test_keys_come_from_hadoops_credential_stores_and_what_is_written_is_encrypted": {"fs.s3a"},
    "test_readers_of_delta_see_the_rows_of_each_commit_once_it_is_published": {
        "by-all-2",
        "by-text-2",
        "by-time-2",
        "flat-2",
    },
    "test_changes_have_the_columns_of_their_end_and_numbers_are_never_cut_off": {"narrowed within", "retyped"},
    "test_a_bad_configuration_exits_with_2_and_says_all_that_is_wrong": {"serve"},
    "test_both_versions_see_every_state_that_either_of_them_made": {"2-one body", "2-tiny parts"},
    "test_old_multipart_uploads_under_the_root_are_aborted_and_reported": {"make_directory"},
}
"""The ids of the cases by the name of the test. `conftest.py` marks them `long`."""


def lost_twins(twins: Mapping[str, Iterable[str]], cases: Iterable[tuple[str, str]]) -> list[str]:
    """The twins, as `test[case]`, that are none of the cases of tests."""
    return sorted(f"{name}[{case}]" for name, case in {(name, it) for name in twins for it in twins[name]} - {*cases})


MOST_CASES = 3
"""Of a test with a Spark session, `make test` runs so many cases."""


def spare_cases(cases: Sequence[_T]) -> list[_T]:
    """The cases that are left to `make test-long`: all but the first, the last, and one in the middle."""
    kept = {0, len(cases) // 2, len(cases) - 1}
    return [case for i, case in enumerate(cases) if i not in kept]
