"""The example of docs/dreaming.md that extracts data from files works as it is written."""

from __future__ import annotations

import json
from pathlib import Path

from tests.rem_command import output
from tests.test_docs import DOCS, read_commands, read_example


def test_documented_extraction_works(dsn: str, tmp_path: Path) -> None:
    page = DOCS / "dreaming.md"
    (tmp_path / "invoice-reader.yaml").write_text(read_example(page, "invoice_reader"), encoding="utf-8")
    (tmp_path / "ontology.yaml").write_text(read_example(page, "ontology_config"), encoding="utf-8")
    (tmp_path / "invoices").mkdir()
    (tmp_path / "invoices" / "acme.md").write_text(
        "# Invoice 17\n\nVendor: Acme Ltd\nTotal: 120.50\n", encoding="utf-8"
    )
    settings = {"POSTGRES__CONNECTION_STRING": dsn, "EMBEDDING__PROVIDER": "none", "REM_HOME": str(tmp_path / "home")}
    *steps, query = read_commands(page, "ontology")
    for step in steps:
        output(*step, settings=settings, cwd=tmp_path)
    (row,) = json.loads(output(*query, "--json", settings=settings, cwd=tmp_path))["results"]
    assert row["extracted_data"] == {"vendor": "Acme Ltd", "total": 120.5}
