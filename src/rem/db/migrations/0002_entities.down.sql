DELETE FROM entity_types WHERE is_builtin;
DROP TABLE tool_gaps, approvals, shared_sessions, feedbacks, schemas, files, documents, messages, sessions, users,
  ontology_configs, ontologies, moments, resources;
DROP FUNCTION rem_cascade_session_deletion();
DROP FUNCTION rem_refuse_deleted_session();
DROP FUNCTION rem_lock_session();
