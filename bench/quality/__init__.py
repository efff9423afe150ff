"""How well REM finds and answers: published data sets, your own data, and weeks of everyday use."""
