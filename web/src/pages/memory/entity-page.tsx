/* One entity: its text and fields, what it is connected with, what dreams say about it and since when. */
import { useMemo, useState, type ReactNode } from "react";

import { ApiError, call } from "../../api/client";
import type { EntityView, Graph, StatementList, StatementRecord } from "../../api/types";
import { useApi } from "../../api/use-api";
import { Badge } from "../../components/badge";
import { Button, IconButton } from "../../components/button";
import { ConfirmDialog } from "../../components/dialog";
import { EmptyState } from "../../components/empty-state";
import { Icon } from "../../components/icon";
import { LoadState } from "../../components/load-state";
import { hasMarkup, isCodeName, Markdown, toPlainText } from "../../components/markdown";
import { Menu, MenuItem, MenuLine } from "../../components/menu";
import { Panel } from "../../components/panel";
import { Segments } from "../../components/segments";
import { showError, showToast } from "../../components/toast";
import { entityPath, graphPath, isShared, keyPath, textField, titleOf, toSafeUrl, type Row } from "../../entity-links";
import { formatDateTime, formatDay, toWords } from "../../format";
import { PageFrame } from "../../layout/page-frame";
import { Link, navigate } from "../../router";
import { texts } from "../../texts";
import { EditDialog } from "./edit-dialog";
import styles from "./entity-page.module.css";
import { ForgetDialog } from "./forget-dialog";

/** What was said or asked stays as it was. */
const FIXED_TABLES = new Set(["messages", "documents", "approvals", "shared_sessions"]);
const HIDDEN_FIELDS = new Set([
  ...["table", "id", "key", "tenant_id", "user_id", "created_at", "updated_at", "deleted_at", "expires_at"],
  ...["graph_edges", "metadata", "tags", "origin", "sources", "run_id", "confidence", "valid_from", "valid_to", "name"],
  // The place of a part in its file is in its key.
  "ordinal",
]);
/** Where a part begins and ends in its file. */
const HIDDEN_METADATA = new Set(["start", "end"]);
const MAX_NEIGHBOURS = 200;

export function EntityPage({ table, entityKey }: { table: string; entityKey: string }) {
  const loaded = useApi((signal) => call("GET /api/v1/entities/{table}/{key}", { path: { table, key: entityKey }, signal }), [table, entityKey]);
  if (loaded.error?.status === 404) return <Missing table={table} entityKey={entityKey} onRestored={loaded.reload} />;
  if (!loaded.data) {
    return (
      <PageFrame title={entityKey}>
        <LoadState loaded={loaded}>{() => null}</LoadState>
      </PageFrame>
    );
  }
  return <Entity entity={loaded.data} onChanged={loaded.reload} />;
}

/** Nothing is there: it never was, it belongs to somebody else, or it was deleted and can come back. */
function Missing({ table, entityKey, onRestored }: { table: string; entityKey: string; onRestored: () => void }) {
  const deleted = useApi(async (signal) => {
    const where = `key = '${entityKey.replaceAll("'", "''")}'`;
    const page = await call("GET /api/v1/entities/{table}", { path: { table }, query: { where, with_deleted: true, limit: 1 }, signal }).catch(
      (error: unknown) => {
        // A table that does not exist has no deleted rows.
        if (error instanceof ApiError && error.status < 500) return null;
        throw error;
      },
    );
    return page?.data[0] ?? false;
  }, [table, entityKey]);
  const restore = () =>
    call("POST /api/v1/restore/{table}/{key}", { path: { table, key: entityKey } }).then(onRestored, (error: unknown) => showError(error));
  const back = <Link href="/memory">{texts.memory.back}</Link>;
  return (
    <PageFrame title={texts.memory.title}>
      <LoadState loaded={deleted}>
        {(row) =>
          row && row.deleted_at ? (
            <EmptyState
              icon="trash"
              title={texts.memory.wasDeleted(titleOf(table, row, entityKey))}
              actions={
                <Button look="primary" icon="restore" onClick={() => void restore()}>
                  {texts.memory.restore}
                </Button>
              }
            >
              {texts.memory.wasDeletedAt(formatDateTime(row.deleted_at))}
            </EmptyState>
          ) : (
            <EmptyState icon="question" title={texts.memory.missingTitle} actions={back}>
              {texts.memory.missing}
            </EmptyState>
          )
        }
      </LoadState>
    </PageFrame>
  );
}

function Entity({ entity, onChanged }: { entity: EntityView; onChanged: () => void }) {
  const [open, setOpen] = useState<"edit" | "delete" | "forget" | null>(null);
  const key = entity.key ?? entity.id;
  const title = titleOf(entity.table, entity, key);
  const shared = isShared(entity);
  const close = () => setOpen(null);
  const actions = (
    <>
      <Button icon="graph" onClick={() => navigate(graphPath(entity.table, key))}>
        {texts.memory.showGraph}
      </Button>
      {!shared && !FIXED_TABLES.has(entity.table) && (
        <Button icon="edit" onClick={() => setOpen("edit")}>
          {texts.memory.edit}
        </Button>
      )}
      <Menu trigger={<IconButton icon="more" label={texts.common.more} />}>
        <MenuItem icon="copy" onSelect={() => void copyKey(key)}>
          {texts.memory.copyKey}
        </MenuItem>
        {!shared && (
          <>
            <MenuLine />
            <MenuItem icon="trash" onSelect={() => setOpen("delete")}>
              {texts.common.delete}
            </MenuItem>
            <MenuItem icon="alert" isDestructive onSelect={() => setOpen("forget")}>
              {texts.memory.forget}
            </MenuItem>
          </>
        )}
      </Menu>
    </>
  );
  const description = (
    <span className={styles.meta}>
      <Link href="/memory">{texts.memory.title}</Link>
      <Badge tone="accent">{texts.memory.tables[entity.table] ?? toWords(entity.table)}</Badge>
      {shared && <Badge>{texts.memory.shared}</Badge>}
      <code>{key}</code>
    </span>
  );
  return (
    <PageFrame title={title} description={description} actions={actions}>
      <div className={styles.columns}>
        <div className={styles.column}>
          <TextPanel entity={entity} />
          <StatementsPanel entity={entity} />
        </div>
        <div className={styles.column}>
          <EdgesPanel entity={entity} />
          <DetailsPanel entity={entity} />
        </div>
      </div>
      {open === "edit" && <EditDialog entity={entity} onClose={close} onSaved={onChanged} />}
      <ConfirmDialog
        isOpen={open === "delete"}
        onClose={close}
        title={texts.memory.deleteTitle(title)}
        description={texts.memory.deleteText}
        confirm={texts.common.delete}
        onConfirm={() => deleteEntity(entity, key, title)}
      />
      {open === "forget" && <ForgetDialog name={typeof entity["name"] === "string" ? entity["name"] : key} onClose={close} />}
    </PageFrame>
  );
}

async function copyKey(key: string): Promise<void> {
  await navigator.clipboard.writeText(key);
  showToast(texts.common.copied);
}

async function deleteEntity(entity: EntityView, key: string, title: string): Promise<void> {
  const path = { table: entity.table, key: entity.id };
  try {
    await call("DELETE /api/v1/entities/{table}/{key}", { path });
  } catch (error) {
    showError(error);
    return;
  }
  navigate("/memory");
  const restore = () =>
    call("POST /api/v1/restore/{table}/{key}", { path }).then(
      () => navigate(entityPath(entity.table, key)),
      (error: unknown) => showError(error),
    );
  showToast(texts.memory.deleted(title), { action: { label: texts.common.undo, run: () => void restore() } });
}

/** A longer text would keep the browser busy as Markdown. */
const MAX_FORMATTED_CHARS = 200_000;
const FRONT_MATTER = /^---[ \t]*\r?\n([\s\S]*?)\r?\n---[ \t]*(?:\r?\n|$)/;

function TextPanel({ entity }: { entity: EntityView }) {
  const field = textField(entity);
  const text = field ? String(entity[field]) : "";
  const isCode = isCodeName(String(entity["uri"] ?? entity.key ?? ""));
  const canFormat = useMemo(() => text.length <= MAX_FORMATTED_CHARS && hasMarkup(text), [text]);
  const [chosen, setChosen] = useState<"formatted" | "raw" | null>(null);
  const look = canFormat ? (chosen ?? (isCode ? "raw" : "formatted")) : "raw";
  const values = Object.entries(entity).filter(([name, value]) => !HIDDEN_FIELDS.has(name) && name !== field && !isEmpty(value));
  const tags = (entity["tags"] as string[] | undefined) ?? [];
  return (
    <Panel
      title={texts.memory.text}
      actions={
        canFormat && (
          <Segments
            label={texts.memory.look}
            value={look}
            options={[
              { value: "formatted", title: texts.memory.formatted },
              { value: "raw", title: texts.memory.raw },
            ]}
            onChange={setChosen}
          />
        )
      }
    >
      {!text && <p className={styles.none}>{texts.memory.noText}</p>}
      {text && look === "raw" && <p className={`${styles.text} ${isCode ? styles.source : ""}`}>{text}</p>}
      {text && look === "formatted" && (
        <div className={styles.formatted}>
          <Markdown text={text.replace(FRONT_MATTER, "```yaml\n$1\n```\n")} />
        </div>
      )}
      {tags.length > 0 && (
        <p className={styles.tags}>
          {tags.map((tag) => (
            <Badge key={tag}>{tag}</Badge>
          ))}
        </p>
      )}
      {values.length > 0 && (
        <dl className={styles.fields}>
          <ValueRows values={values} />
        </dl>
      )}
    </Panel>
  );
}

function isEmpty(value: unknown): boolean {
  if (value === null || value === undefined || value === "") return true;
  return typeof value === "object" && Object.keys(value).length === 0;
}

function ValueRows({ values }: { values: readonly [string, unknown][] }) {
  return values.map(([name, value]) => (
    <div key={name}>
      <dt>{toWords(name)}</dt>
      <dd>
        <Value value={value} />
      </dd>
    </div>
  ));
}

function Value({ value }: { value: unknown }): ReactNode {
  const url = toSafeUrl(value);
  if (url) {
    return (
      <a href={url} target="_blank" rel="noreferrer noopener">
        {String(value)}
      </a>
    );
  }
  if (Array.isArray(value) && value.every((item) => typeof item !== "object")) return value.join(", ");
  if (typeof value === "object" && value !== null && !Array.isArray(value) && Object.values(value).every(isSimple)) {
    return (
      <ul className={styles.values}>
        {Object.entries(value)
          .filter(([, item]) => !isEmpty(item))
          .map(([name, item]) => (
            <li key={name}>{`${toWords(name)}: ${Array.isArray(item) ? item.join(", ") : String(item)}`}</li>
          ))}
      </ul>
    );
  }
  if (typeof value === "object") return <code className={styles.json}>{JSON.stringify(value)}</code>;
  if (typeof value === "string" && /^\d{4}-\d\d-\d\dT/.test(value)) return formatDateTime(value);
  return String(value);
}

function isSimple(value: unknown): boolean {
  return Array.isArray(value) ? value.every((item) => typeof item !== "object") : typeof value !== "object" || value === null;
}

interface Neighbour {
  id: string;
  name: string;
  table: string;
  key: string;
  isOutgoing: boolean;
}

function EdgesPanel({ entity }: { entity: EntityView }) {
  const key = entity.key ?? entity.id;
  const graph = useApi(
    (signal) => call("GET /api/v1/graph", { query: { key, table: entity.table, depth: 1, limit: MAX_NEIGHBOURS }, signal }),
    [entity.id, entity.updated_at],
  );
  return (
    <Panel
      title={texts.memory.edges}
      count={graph.data ? listNeighbours(graph.data, entity.id).flatMap(([, items]) => items).length : undefined}
    >
      <LoadState loaded={graph}>
        {(found) => {
          const groups = listNeighbours(found, entity.id);
          const names = new Set(found.nodes.flatMap((node) => [node.key, node.name.toLowerCase()]));
          const dangling = ((entity["graph_edges"] as Row[] | undefined) ?? []).filter((edge) => !isKnown(edge, names));
          if (!groups.length && !dangling.length) return <p className={styles.none}>{texts.memory.noEdges}</p>;
          return (
            <>
              {groups.map(([relation, items]) => (
                <section key={relation} className={styles.relation}>
                  <h3>{relation}</h3>
                  <ul>
                    {items.map((item) => (
                      <li key={item.id}>
                        <Link href={entityPath(item.table, item.key)}>{item.name}</Link>
                        <span>{texts.memory.tables[item.table] ?? toWords(item.table)}</span>
                      </li>
                    ))}
                  </ul>
                </section>
              ))}
              {dangling.length > 0 && (
                <section className={styles.relation}>
                  <h3>{texts.memory.dangling}</h3>
                  <ul>
                    {dangling.map((edge) => (
                      <li key={`${String(edge["rel_type"])} ${String(edge["dst"])}`}>
                        <span>{`${toWords(String(edge["rel_type"]))} ${String(edge["dst"])}`}</span>
                      </li>
                    ))}
                  </ul>
                </section>
              )}
            </>
          );
        }}
      </LoadState>
    </Panel>
  );
}

function isKnown(edge: Row, names: ReadonlySet<string>): boolean {
  const target = String(edge["dst"]).toLowerCase();
  const slug = target.replaceAll(/[^\p{L}\p{N}]+/gu, "-");
  return names.has(target) || names.has(slug) || [...names].some((name) => name.endsWith(`/${slug}`));
}

/** The neighbours of the entity by relation: what it leads to first, then what leads to it. */
function listNeighbours(graph: Graph, id: string): [string, Neighbour[]][] {
  const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
  const groups = new Map<string, Neighbour[]>();
  for (const isOutgoing of [true, false]) {
    for (const edge of graph.edges) {
      const [from, to] = isOutgoing ? [edge.source, edge.target] : [edge.target, edge.source];
      const node = nodes.get(to);
      if (from !== id || to === id || !node) continue;
      const words = toWords(edge.rel_type);
      const relation = isOutgoing ? words : texts.memory.incoming(words);
      const items = groups.get(relation) ?? [];
      groups.set(relation, items);
      if (!items.some((item) => item.id === node.id)) items.push({ ...node, isOutgoing });
    }
  }
  return [...groups.entries()];
}

function StatementsPanel({ entity }: { entity: EntityView }) {
  const key = `${entity.table}/${entity.key ?? entity.id}`;
  const loaded = useApi(async (signal): Promise<StatementList | null> => {
    return call("GET /api/v1/statements", { query: { key, limit: 200 }, signal });
  }, [key, entity.updated_at]);
  return (
    <Panel title={texts.memory.statements} count={loaded.data?.total} description={texts.memory.statementsText}>
      <LoadState loaded={loaded}>
        {(list) => {
          if (!list?.data.length) return <p className={styles.none}>{texts.memory.noStatements}</p>;
          const live = list.data.filter((statement) => statement.state === "live");
          const ended = list.data.filter((statement) => statement.state !== "live");
          return (
            <>
              <ul className={styles.statements}>
                {live.map((statement) => (
                  <Statement key={statement.id} statement={statement} entityId={entity.id} entityKey={entity.key ?? entity.id} />
                ))}
              </ul>
              {ended.length > 0 && (
                <>
                  <h3 className={styles.historyTitle}>{texts.memory.history}</h3>
                  <ul className={styles.statements}>
                    {ended.map((statement) => (
                      <Statement key={statement.id} statement={statement} entityId={entity.id} entityKey={entity.key ?? entity.id} />
                    ))}
                  </ul>
                </>
              )}
            </>
          );
        }}
      </LoadState>
    </Panel>
  );
}

/** Something that dreams have said about the entity, or about another row that leads to it. */
function Statement({ statement, entityId, entityKey }: { statement: StatementRecord; entityId: string; entityKey: string }) {
  const since = statement.valid_from ?? statement.stated_at;
  const until = statement.valid_to ?? statement.ended_at;
  const isOwn = statement.entity_id === entityId;
  const sources = statement.sources.filter((source) => isOwn || (source !== entityKey && source !== statement.key));
  return (
    <li className={`${styles.statement} ${statement.state === "live" ? "" : styles.ended}`}>
      <p className={styles.says}>
        {!isOwn && <Link href={entityPath(statement.entity_type, statement.key)}>{statement.key}</Link>}
        {`${isOwn ? "" : " "}${describeStatement(statement)}`}
      </p>
      <p className={styles.period}>
        <Icon name="clock" size={14} />
        {until ? texts.memory.period(formatDay(since), formatDay(until)) : texts.memory.since(formatDay(since))}
        {statement.state !== "live" && <Badge>{toWords(statement.state)}</Badge>}
        {statement.confidence !== null && <span>{texts.memory.confidence(statement.confidence)}</span>}
      </p>
      {sources.length > 0 && (
        <p className={styles.sources}>
          {texts.memory.from}{" "}
          {sources.map((source) => (
            <Link key={source} href={keyPath(source)}>
              {source}
            </Link>
          ))}
        </p>
      )}
    </li>
  );
}

/** Say a statement in words. */
function describeStatement(statement: StatementRecord): string {
  const value = statement.value as Row | string | null;
  if (statement.kind === "edge" && value && typeof value === "object") {
    return `${toWords(String(value["rel_type"]))} ${String(value["dst"])}`;
  }
  if (statement.kind === "field" || typeof value !== "object" || value === null) {
    return `${toWords(statement.name)}: ${Array.isArray(value) ? value.join(", ") : String(value)}`;
  }
  return toPlainText(String(value["summary"] ?? value["content"] ?? value["name"] ?? statement.name));
}

function DetailsPanel({ entity }: { entity: EntityView }) {
  const origin = String(entity["origin"] ?? "user");
  const sources = (entity["sources"] as string[] | undefined) ?? [];
  const metadata = Object.entries((entity["metadata"] as Row | undefined) ?? {}).filter(
    ([name, value]) => !isEmpty(value) && !HIDDEN_METADATA.has(name),
  );
  return (
    <Panel title={texts.memory.details}>
      <dl className={styles.fields}>
        <div>
          <dt>{texts.memory.createdAt}</dt>
          <dd>{formatDateTime(entity.created_at)}</dd>
        </div>
        <div>
          <dt>{texts.memory.updatedAt}</dt>
          <dd>{formatDateTime(entity.updated_at)}</dd>
        </div>
        <div>
          <dt>{texts.memory.origin}</dt>
          <dd>{origin === "user" ? texts.memory.originUser : origin}</dd>
        </div>
        {typeof entity["expires_at"] === "string" && (
          <div>
            <dt>{texts.memory.expiresAt}</dt>
            <dd>{formatDateTime(entity["expires_at"])}</dd>
          </div>
        )}
        {sources.length > 0 && (
          <div>
            <dt>{texts.memory.sources}</dt>
            <dd className={styles.sources}>
              {sources.map((source) => (
                <Link key={source} href={keyPath(source)}>
                  {source}
                </Link>
              ))}
            </dd>
          </div>
        )}
        <ValueRows values={metadata} />
      </dl>
    </Panel>
  );
}
