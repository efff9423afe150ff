DROP TABLE forgotten_texts;
