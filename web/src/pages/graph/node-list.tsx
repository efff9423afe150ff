/* The graph as a list, for people who do not see or point at a drawing. */
import type { Graph, Node } from "../../api/types";
import { Button } from "../../components/button";
import { entityPath } from "../../entity-links";
import { formatDay, toWords } from "../../format";
import { Link } from "../../router";
import { texts } from "../../texts";
import styles from "./graph-page.module.css";

interface Props {
  graph: Graph;
  expanded: ReadonlySet<string>;
  onExpand: (node: Node) => void;
}

const MAX_RELATIONS = 6;

export function NodeList({ graph, expanded, onExpand }: Props) {
  const names = new Map(graph.nodes.map((node) => [node.id, node.name]));
  const relations = new Map<string, string[]>();
  for (const edge of graph.edges) {
    const lines = relations.get(edge.source) ?? [];
    relations.set(edge.source, [...lines, `${toWords(edge.rel_type)} ${names.get(edge.target) ?? ""}`]);
  }
  return (
    <ul className={styles.list} aria-label={texts.graph.list}>
      {graph.nodes.map((node) => {
        const lines = relations.get(node.id) ?? [];
        return (
          <li key={node.id}>
            <div className={styles.listText}>
              <p>
                <Link href={entityPath(node.table, node.key)}>{node.name}</Link>
                <span className={styles.listType}>
                  {texts.memory.tables[node.table] ?? toWords(node.table)}
                  {node.happened_at && ` · ${formatDay(node.happened_at)}`}
                  {` · ${texts.graph.steps(node.depth)}`}
                </span>
              </p>
              {lines.length > 0 && (
                <p className={styles.relations}>
                  {lines.slice(0, MAX_RELATIONS).join(" · ")}
                  {lines.length > MAX_RELATIONS && ` · ${texts.memory.andMore(lines.length - MAX_RELATIONS)}`}
                </p>
              )}
            </div>
            {node.depth > 0 && !expanded.has(node.id) && (
              <Button isSmall icon="add" onClick={() => onExpand(node)}>
                {texts.graph.expand}
                <span className="visually-hidden">{texts.graph.ofNode(node.name)}</span>
              </Button>
            )}
          </li>
        );
      })}
    </ul>
  );
}
