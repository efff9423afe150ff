import type { Graph, Node } from "../../api/types";

/** Add what is around a node to a graph. New nodes are one step further away than the node. */
export function mergeGraphs(graph: Graph, more: Graph, from: Node): Graph {
  const known = new Set(graph.nodes.map((node) => node.id));
  const nodes = more.nodes.filter((node) => !known.has(node.id)).map((node) => ({ ...node, depth: from.depth + 1 }));
  const name = (edge: Graph["edges"][number]) => `${edge.source} ${edge.target} ${edge.rel_type}`;
  const edges = new Set(graph.edges.map(name));
  return {
    nodes: [...graph.nodes, ...nodes],
    edges: [...graph.edges, ...more.edges.filter((edge) => !edges.has(name(edge)))],
    is_cut: graph.is_cut || more.is_cut,
  };
}
