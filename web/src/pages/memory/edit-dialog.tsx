/* Change the texts of an entity. */
import { useState, type FormEvent } from "react";

import { ApiError, call } from "../../api/client";
import type { EntityTable, EntityView } from "../../api/types";
import { useApi } from "../../api/use-api";
import { Button } from "../../components/button";
import { Dialog } from "../../components/dialog";
import { TextArea, TextField } from "../../components/field";
import { LoadState } from "../../components/load-state";
import { describeError, showToast } from "../../components/toast";
import type { Row } from "../../entity-links";
import { toWords } from "../../format";
import { texts } from "../../texts";
import styles from "./edit-dialog.module.css";

const LONG_FIELDS = new Set(["content", "summary", "description"]);
/** Fields that the store or dreams set, and those that only programs understand. */
const HIDDEN_FIELDS = new Set([
  ...["id", "key", "tenant_id", "user_id", "created_at", "updated_at", "deleted_at", "expires_at", "origin", "sources"],
  ...["run_id", "valid_from", "valid_to", "uri", "checksum", "mime_type", "source_session_id", "starts_timestamp", "ends_timestamp"],
]);

interface Field {
  name: string;
  isList: boolean;
}

interface Props {
  entity: EntityView;
  onClose: () => void;
  onSaved: () => void;
}

export function EditDialog({ entity, onClose, onSaved }: Props) {
  const tables = useApi((signal) => call("GET /api/v1/entities", { signal }), []);
  return (
    <LoadState loaded={tables}>
      {(page) => {
        const table = page.data.find((known) => known.name === entity.table);
        return table && <EditForm entity={entity} fields={listFields(table)} onClose={onClose} onSaved={onSaved} />;
      }}
    </LoadState>
  );
}

/** The fields that hold a text or a list of words, the long ones first. */
function listFields(table: EntityTable): Field[] {
  const fields = Object.entries(table.fields).flatMap(([name, schema]): Field[] => {
    const { type, items, anyOf, format, enum: choices } = schema as Row & { items?: Row; anyOf?: Row[] };
    if (HIDDEN_FIELDS.has(name) || choices) return [];
    if (type === "array" && items?.["type"] === "string" && !items["format"]) return [{ name, isList: true }];
    const isText = (type === "string" && !format) || anyOf?.some((part) => part["type"] === "string" && !part["format"]);
    return isText ? [{ name, isList: false }] : [];
  });
  const rank = (field: Field) => (field.name === "name" ? 0 : LONG_FIELDS.has(field.name) ? 1 : 2);
  return fields.sort((left, right) => rank(left) - rank(right));
}

function EditForm({ entity, fields, onClose, onSaved }: Props & { fields: readonly Field[] }) {
  const [values, setValues] = useState(() => Object.fromEntries(fields.map((field) => [field.name, toText(entity[field.name])])));
  const [problem, setProblem] = useState<string | null>(null);
  const [isBusy, setIsBusy] = useState(false);
  const save = async (event: FormEvent) => {
    event.preventDefault();
    const changed = fields.filter(({ name }) => values[name] !== toText(entity[name]));
    if (!changed.length) {
      onClose();
      return;
    }
    const body: Row = { updated_at: entity.updated_at };
    for (const { name, isList } of changed) body[name] = isList ? toList(values[name] ?? "") : values[name] || null;
    for (const name of LONG_FIELDS) if (body[name] === null) body[name] = "";
    setIsBusy(true);
    try {
      await call("PATCH /api/v1/entities/{table}/{key}", { path: { table: entity.table, key: entity.id }, body });
      showToast(texts.memory.saved);
      onSaved();
      onClose();
    } catch (error) {
      const isOld = error instanceof ApiError && error.status === 412;
      setProblem(isOld ? texts.memory.changedMeanwhile : describeError(error));
    } finally {
      setIsBusy(false);
    }
  };
  const footer = (
    <>
      <Button onClick={onClose}>{texts.common.cancel}</Button>
      <Button look="primary" type="submit" form="edit-entity" isBusy={isBusy}>
        {texts.common.save}
      </Button>
    </>
  );
  return (
    <Dialog isOpen isWide onClose={onClose} title={texts.memory.edit} description={texts.memory.editText} footer={footer}>
      <form id="edit-entity" className={styles.form} onSubmit={(event) => void save(event)}>
        {problem && (
          <p className={styles.problem} role="alert">
            {problem}
          </p>
        )}
        {fields.map(({ name, isList }) => {
          const label = toWords(name);
          const props = {
            label,
            value: values[name] ?? "",
            hint: isList ? texts.memory.listHint : undefined,
            onChange: (event: { target: { value: string } }) => setValues({ ...values, [name]: event.target.value }),
          };
          return LONG_FIELDS.has(name) ? <TextArea key={name} rows={8} {...props} /> : <TextField key={name} {...props} />;
        })}
      </form>
    </Dialog>
  );
}

function toText(value: unknown): string {
  if (Array.isArray(value)) return value.join(", ");
  return value === null || value === undefined ? "" : String(value);
}

function toList(text: string): string[] {
  return text
    .split(",")
    .map((item) => item.trim())
    .filter(Boolean);
}
