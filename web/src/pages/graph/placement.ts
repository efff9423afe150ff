/* Where nodes are drawn: rings around the middle, each node near what it hangs on. Linear in the size of the graph. */
import type { Graph } from "../../api/types";

export interface Position {
  x: number;
  y: number;
}

/** More nodes are drawn plainly: labels only when one looks closer, and edges as straight lines. */
export const LARGE_GRAPH = 300;
/** With more nodes, labels are drawn larger, because the view is zoomed out. */
export const SMALL_GRAPH = 25;
export const MAX_LABEL_WIDTH = 150;
const NODE_SPACE = 72;
const RING_SPACE = 200;
const SMALL_RING_SPACE = 130;
/** So many nodes of one parent stand side by side; more take another row. */
const ROW_NODES = 12;
const MAX_ROWS = 12;

/**
 * Return the places of all nodes. Nodes in `known` stay; new ones are placed around the node that they hang on.
 * `aspect` is the width of the view for one unit of height.
 */
export function placeNodes(graph: Graph, known: ReadonlyMap<string, Position>, aspect: number): Map<string, Position> {
  const places = new Map(known);
  const children = listChildren(graph);
  const roots = graph.nodes.filter((node) => node.depth === 0).map((node) => node.id);
  for (const [index, id] of roots.entries()) if (!places.has(id)) places.set(id, { x: index * NODE_SPACE, y: 0 });
  const shares = countLeaves(roots, children);
  if (known.size) placeAroundParents(roots, children, places);
  else for (const id of roots) placeInRings(id, children, shares, places, graph);
  if (graph.nodes.length > LARGE_GRAPH) return places;
  const added = graph.nodes.filter((node) => !known.has(node.id));
  if (!known.size) for (const { id } of added) stretch(places, id, aspect);
  separateLabels(graph, places, new Set([...known.keys(), ...roots]));
  return places;
}

/** Use the whole width of a wide view. */
function stretch(places: Map<string, Position>, id: string, aspect: number): void {
  const place = places.get(id);
  if (place) places.set(id, { x: place.x * Math.min(1.8, Math.max(1, aspect)), y: place.y });
}

const MAX_ROUNDS = 80;
/** The average width of a letter for one unit of its height, a little generous. */
const LETTER_WIDTH = 0.6;

/** Push nodes apart whose labels cover each other. Those in `fixed` stay where they are. */
function separateLabels(graph: Graph, places: Map<string, Position>, fixed: ReadonlySet<string>): void {
  const font = graph.nodes.length <= SMALL_GRAPH ? 13 : 18;
  const boxes = graph.nodes.map((node) => ({
    id: node.id,
    ...(places.get(node.id) ?? { x: 0, y: 0 }),
    width: Math.min(MAX_LABEL_WIDTH, Math.max(26, node.name.length * font * LETTER_WIDTH)) + 16,
    // The node in the middle is drawn larger.
    height: (node.depth === 0 ? 62 : 26) + 14 + font * 1.3,
    isFixed: fixed.has(node.id),
  }));
  for (let round = 0, hasMoved = true; hasMoved && round < MAX_ROUNDS; round++) {
    hasMoved = false;
    for (const [index, box] of boxes.entries()) {
      for (let next = index + 1; next < boxes.length; next++) {
        const other = boxes[next];
        if (!other || (box.isFixed && other.isFixed)) continue;
        const [dx, dy] = [other.x - box.x, other.y - box.y];
        const overlapX = (box.width + other.width) / 2 - Math.abs(dx);
        const overlapY = (box.height + other.height) / 2 - Math.abs(dy);
        if (overlapX <= 0.5 || overlapY <= 0.5) continue;
        hasMoved = true;
        const share = box.isFixed ? 0 : other.isFixed ? 1 : 0.5;
        // The shorter way apart.
        const axis = overlapX < overlapY ? "x" : "y";
        const push = Math.min(overlapX, overlapY) * ((axis === "x" ? dx : dy) < 0 ? -1 : 1);
        box[axis] -= push * share;
        other[axis] += push * (1 - share);
      }
    }
  }
  for (const { id, x, y } of boxes) places.set(id, { x, y });
}

/** The nodes that hang on each node: those it reached first. */
function listChildren(graph: Graph): Map<string, string[]> {
  const neighbours = new Map<string, string[]>();
  const link = (from: string, to: string) => {
    const known = neighbours.get(from);
    if (known) known.push(to);
    else neighbours.set(from, [to]);
  };
  for (const { source, target } of graph.edges) {
    link(source, target);
    link(target, source);
  }
  const children = new Map<string, string[]>();
  const seen = new Set(graph.nodes.filter((node) => node.depth === 0).map((node) => node.id));
  let level = [...seen];
  while (level.length) {
    const next: string[] = [];
    for (const id of level) {
      const found = [...new Set(neighbours.get(id) ?? [])].filter((other) => !seen.has(other));
      for (const other of found) seen.add(other);
      children.set(id, found);
      next.push(...found);
    }
    level = next;
  }
  return children;
}

/** How many ends hang on each node: its share of the circle. */
function countLeaves(roots: readonly string[], children: ReadonlyMap<string, string[]>): Map<string, number> {
  const order: string[] = [...roots];
  for (let index = 0; index < order.length; index++) order.push(...(children.get(order[index] ?? "") ?? []));
  const shares = new Map<string, number>();
  for (const id of order.reverse()) {
    const sum = (children.get(id) ?? []).reduce((total, child) => total + (shares.get(child) ?? 1), 0);
    shares.set(id, Math.max(1, sum));
  }
  return shares;
}

function placeInRings(
  root: string,
  children: ReadonlyMap<string, string[]>,
  shares: ReadonlyMap<string, number>,
  places: Map<string, Position>,
  graph: Graph,
): void {
  const total = shares.get(root) ?? 1;
  // All ends must fit on the ring with room between them.
  const widest = (Math.max(total, graph.nodes.length / 4) * NODE_SPACE) / (2 * Math.PI);
  const step = Math.max(graph.nodes.length <= SMALL_GRAPH ? SMALL_RING_SPACE : RING_SPACE, Math.min(widest, 2400));
  const centre = places.get(root) ?? { x: 0, y: 0 };
  let level = [{ id: root, from: -Math.PI / 2, to: 1.5 * Math.PI }];
  for (let ring = 1; level.length; ring++) {
    const next: typeof level = [];
    for (const { id, from, to } of level) {
      let angle = from;
      const own = children.get(id) ?? [];
      const sum = own.reduce((count, child) => count + (shares.get(child) ?? 1), 0);
      const rows = Math.min(MAX_ROWS, Math.ceil(own.length / ROW_NODES));
      for (const [index, child] of own.entries()) {
        const span = ((to - from) * (shares.get(child) ?? 1)) / sum;
        const middle = angle + span / 2;
        // Neighbours on a full ring stand in front of each other, so that their names stay apart.
        const radius = step * (ring - ((index % rows) / rows) * 0.7);
        places.set(child, { x: centre.x + Math.cos(middle) * radius, y: centre.y + Math.sin(middle) * radius });
        next.push({ id: child, from: angle, to: angle + span });
        angle += span;
      }
    }
    level = next;
  }
}

/** Place new nodes on an arc behind the node that they hang on, seen from the middle. */
function placeAroundParents(roots: readonly string[], children: ReadonlyMap<string, string[]>, places: Map<string, Position>): void {
  const middle = places.get(roots[0] ?? "") ?? { x: 0, y: 0 };
  const queue = [...roots];
  for (let index = 0; index < queue.length; index++) {
    const id = queue[index] ?? "";
    const own = children.get(id) ?? [];
    queue.push(...own);
    const added = own.filter((child) => !places.has(child));
    const parent = places.get(id) ?? middle;
    const isMiddle = parent.x === middle.x && parent.y === middle.y;
    const direction = isMiddle ? 0 : Math.atan2(parent.y - middle.y, parent.x - middle.x);
    const arc = isMiddle ? 2 * Math.PI : Math.min(Math.PI * 1.2, added.length * 0.5);
    const radius = Math.max(RING_SPACE * 0.8, (added.length * NODE_SPACE) / (arc || 1));
    for (const [position, child] of added.entries()) {
      const angle = direction + arc * ((position + 0.5) / added.length - 0.5);
      places.set(child, { x: parent.x + Math.cos(angle) * radius, y: parent.y + Math.sin(angle) * radius });
    }
  }
}
