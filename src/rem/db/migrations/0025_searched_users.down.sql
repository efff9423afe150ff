UPDATE entity_types SET search_fields = '{summary}', search_expression = 'r.summary' WHERE name = 'users';
DELETE FROM passages WHERE entity_type = 'users' AND field <> 'summary';
