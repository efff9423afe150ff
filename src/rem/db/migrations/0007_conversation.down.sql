DROP TABLE session_counters;
DROP TABLE session_summaries;
DROP INDEX messages_important;
