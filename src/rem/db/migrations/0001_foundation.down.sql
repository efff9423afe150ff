-- Extensions stay: other schemas of the database may use them.
DROP TABLE entity_types;
DROP FUNCTION rem_make_entity(text, text);
DROP FUNCTION rem_refuse_content_change();
DROP FUNCTION rem_refuse_identity_change();
DROP FUNCTION rem_touch();
DROP FUNCTION rem_compact_key(text);
DROP FUNCTION rem_key(text);
DROP FUNCTION rem_key_of_clean_label(text);
DROP FUNCTION rem_fold(text);
