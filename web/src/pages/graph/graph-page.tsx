/* Graph: what is connected with a key, drawn or as a list, by relation, type and time. */
import { useEffect, useRef, useState } from "react";

import { call } from "../../api/client";
import type { Graph, Node } from "../../api/types";
import { useApi } from "../../api/use-api";
import { Button } from "../../components/button";
import { EmptyState } from "../../components/empty-state";
import { Select, TextField } from "../../components/field";
import { LoadState } from "../../components/load-state";
import { toPlainText } from "../../components/markdown";
import { Segments } from "../../components/segments";
import { Spinner } from "../../components/spinner";
import { showError } from "../../components/toast";
import { entityPath, graphPath } from "../../entity-links";
import { formatDay, toWords } from "../../format";
import { PageFrame } from "../../layout/page-frame";
import { Link, navigate, useQuery } from "../../router";
import { texts } from "../../texts";
import { Drawing, type DrawingHandle } from "./drawing";
import styles from "./graph-page.module.css";
import { KeyPicker } from "./key-picker";
import { mergeGraphs } from "./merge";
import { NodeList } from "./node-list";

const MAX_NODES = 2000;
const DEPTHS = ["1", "2", "3"] as const;

export default function GraphPage() {
  const [address] = useQuery();
  const key = address.get("key");
  const table = address.get("table");
  return (
    <PageFrame title={texts.graph.title} description={texts.graph.description}>
      <div className={styles.page}>
        <KeyPicker keyName={key ?? ""} onPick={(known) => navigate(graphPath(known.table, known.key))} />
        {key ? <GraphAround key={`${table} ${key}`} keyName={key} table={table} /> : <Start />}
      </div>
    </PageFrame>
  );
}

/** Things to begin with, as nobody knows keys by heart. */
function Start() {
  const recent = useApi(async (signal) => {
    const load = (table: string) =>
      call("GET /api/v1/entities/{table}", { path: { table }, query: { limit: 8, order_by: "-updated_at" }, signal });
    const pages = await Promise.all(["ontologies", "users", "resources"].map(load));
    return pages.flatMap((page) => page.data).filter((row) => row.key);
  }, []);
  return (
    <LoadState loaded={recent}>
      {(rows) => (
        <EmptyState icon="graph" title={texts.graph.startTitle} actions={!rows.length && <Link href="/files">{texts.files.add}</Link>}>
          <p>{rows.length ? texts.graph.start : texts.graph.nothingYet}</p>
          <ul className={styles.starts}>
            {rows.slice(0, 14).map((row) => (
              <li key={row.id}>
                <Link href={graphPath(row.table, row.key ?? "")}>{String(row["name"] ?? row.key)}</Link>
              </li>
            ))}
          </ul>
        </EmptyState>
      )}
    </LoadState>
  );
}

function GraphAround({ keyName, table }: { keyName: string; table: string | null }) {
  const [address, setAddress] = useQuery();
  const depth = address.get("depth") ?? "1";
  const relation = address.get("relation") ?? "";
  const type = address.get("type") ?? "";
  const since = address.get("since") ?? "";
  const until = address.get("until") ?? "";
  const view = address.get("view") === "list" ? "list" : "drawing";
  const filters = {
    rel_type: relation ? [relation] : undefined,
    tables: type ? [type] : undefined,
    since: since || undefined,
    until: until || undefined,
    limit: MAX_NODES,
  };
  const loaded = useApi(
    (signal) => call("GET /api/v1/graph", { query: { key: keyName, table: table ?? undefined, depth: Number(depth), ...filters }, signal }),
    [keyName, table, depth, relation, type, since, until],
  );
  const [known, setKnown] = useState<{ relations: string[]; tables: string[] }>({ relations: [], tables: [] });
  const [selected, setSelected] = useState<string | null>(null);
  const [expanded, setExpanded] = useState<ReadonlySet<string>>(new Set());
  const drawing = useRef<DrawingHandle>(null);
  const graph = loaded.data;
  useEffect(() => {
    // A filter shows fewer relations; the choices stay.
    if (graph) setKnown((old) => collectChoices(graph, old));
  }, [graph]);
  useEffect(() => setExpanded(new Set()), [depth, relation, type, since, until]);

  const expand = async (node: Node) => {
    setSelected(node.id);
    if (expanded.has(node.id)) return;
    setExpanded((old) => new Set(old).add(node.id));
    try {
      const more = await call("GET /api/v1/graph", { query: { key: node.key, table: node.table, depth: 1, ...filters } });
      loaded.setData((data) => (data ? mergeGraphs(data, more, node) : data));
    } catch (error) {
      showError(error);
    }
  };
  if (loaded.error?.status === 404) {
    return (
      <EmptyState icon="question" title={texts.memory.missingTitle} actions={<Link href="/graph">{texts.graph.other}</Link>}>
        {texts.memory.missing}
      </EmptyState>
    );
  }
  const node = graph?.nodes.find((candidate) => candidate.id === selected) ?? graph?.nodes[0] ?? null;
  return (
    <>
      <div className={styles.toolbar} role="group" aria-label={texts.graph.filters}>
        <Select
          label={texts.graph.relation}
          value={relation}
          options={[{ value: "", title: texts.graph.allRelations }, ...known.relations.map((name) => ({ value: name, title: toWords(name) }))]}
          onChange={(event) => setAddress({ relation: event.target.value }, true)}
        />
        <Select
          label={texts.graph.type}
          value={type}
          options={[{ value: "", title: texts.graph.allTypes }, ...known.tables.map((name) => ({ value: name, title: texts.memory.tables[name] ?? name }))]}
          onChange={(event) => setAddress({ type: event.target.value }, true)}
        />
        <TextField label={texts.graph.since} type="date" value={since} onChange={(event) => setAddress({ since: event.target.value }, true)} />
        <TextField label={texts.graph.until} type="date" value={until} onChange={(event) => setAddress({ until: event.target.value }, true)} />
        <div className={styles.depth}>
          <span aria-hidden="true">{texts.graph.depth}</span>
          <Segments
            label={texts.graph.depth}
            value={depth}
            options={DEPTHS.map((value) => ({ value: value as string, title: value }))}
            onChange={(value) => setAddress({ depth: value }, true)}
          />
        </div>
      </div>
      <div className={styles.bar}>
        <p role="status" className={styles.counts}>
          {loaded.isLoading ? <Spinner size={16} label={texts.common.loading} /> : graph && texts.graph.counts(graph.nodes.length, graph.edges.length)}
          {graph?.is_cut && ` ${texts.graph.isCut(MAX_NODES)}`}
        </p>
        <div className={styles.barActions}>
          <Segments
            label={texts.graph.view}
            value={view}
            options={[
              { value: "drawing", title: texts.graph.drawing },
              { value: "list", title: texts.graph.list },
            ]}
            onChange={(value) => setAddress({ view: value === "list" ? "list" : null }, true)}
          />
          {view === "drawing" && (
            <Button isSmall icon="download" disabled={!graph} onClick={() => void drawing.current?.download(`${keyName}.png`)}>
              {texts.graph.export}
            </Button>
          )}
        </div>
      </div>
      {loaded.error && <LoadState loaded={loaded}>{() => null}</LoadState>}
      {graph && (
        <div className={styles.view}>
          {view === "drawing" ? (
            <Drawing ref={drawing} graph={graph} selected={node?.id ?? null} onOpen={(opened) => void expand(opened)} />
          ) : (
            <NodeList graph={graph} expanded={expanded} onExpand={(opened) => void expand(opened)} />
          )}
          {view === "drawing" && node && <NodePanel node={node} isExpanded={expanded.has(node.id)} onExpand={() => void expand(node)} />}
        </div>
      )}
    </>
  );
}

function NodePanel({ node, isExpanded, onExpand }: { node: Node; isExpanded: boolean; onExpand: () => void }) {
  return (
    <section className={styles.node} aria-label={texts.graph.selected}>
      <p className={styles.nodeType}>
        {texts.memory.tables[node.table] ?? toWords(node.table)}
        {node.happened_at && ` · ${formatDay(node.happened_at)}`}
      </p>
      <h2>{node.name}</h2>
      {node.excerpt && <p className={styles.excerpt}>{toPlainText(node.excerpt)}</p>}
      <div className={styles.nodeActions}>
        <Link href={entityPath(node.table, node.key)}>{texts.graph.open}</Link>
        {node.depth > 0 && <Link href={graphPath(node.table, node.key)}>{texts.graph.centre}</Link>}
        {!isExpanded && node.depth > 0 && (
          <Button isSmall icon="add" onClick={onExpand}>
            {texts.graph.expand}
          </Button>
        )}
      </div>
    </section>
  );
}

function collectChoices(graph: Graph, old: { relations: string[]; tables: string[] }) {
  const relations = new Set([...old.relations, ...graph.edges.map((edge) => edge.rel_type)]);
  const tables = new Set([...old.tables, ...graph.nodes.map((node) => node.table)]);
  return { relations: [...relations].sort(), tables: [...tables].sort() };
}
