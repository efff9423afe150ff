DROP TABLE audit_log;
DROP FUNCTION rem_audit_log_guard();
