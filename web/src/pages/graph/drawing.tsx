/* The graph as a drawing, by Cytoscape, which is loaded only here. */
import type { Core, ElementDefinition, EventObject, NodeSingular } from "cytoscape";
import { forwardRef, useEffect, useImperativeHandle, useRef, useState } from "react";

import type { Graph, Node } from "../../api/types";
import { IconButton } from "../../components/button";
import { Spinner } from "../../components/spinner";
import { toWords } from "../../format";
import { texts } from "../../texts";
import { useIsDark } from "../../theme";
import { chooseLook, colourOf, makeStyle } from "./drawing-style";
import styles from "./graph-page.module.css";
import { LARGE_GRAPH, MAX_LABEL_WIDTH, placeNodes, type Position } from "./placement";

/** Cytoscape writes no style element into the page if it finds this id, and our style sheet says the same. */
const CYTOSCAPE_STYLE_ID = "__________cytoscape_stylesheet";
const MAX_FIT_ZOOM = 1.2;
const FIT_PADDING = 24;
/** A node with its label. */
const NODE_HEIGHT = 80;
/** So many elements are added before the page draws and listens again. */
const PART_ELEMENTS = 400;
const MAX_IMAGE_PIXELS = 6000;

export interface DrawingHandle {
  download: (name: string) => Promise<void>;
}

interface Props {
  graph: Graph;
  selected: string | null;
  onOpen: (node: Node) => void;
}

export const Drawing = forwardRef<DrawingHandle, Props>(function Drawing({ graph, selected, onOpen }, ref) {
  const box = useRef<HTMLDivElement>(null);
  const [cy, setCy] = useState<Core | null>(null);
  const [drawn, setDrawn] = useState<Graph | null>(null);
  const isDark = useIsDark();
  const look = chooseLook(graph.nodes.length, graph.edges.length);
  const { isLarge } = look;
  const latest = useRef({ graph, onOpen, look });
  latest.current = { graph, onOpen, look };

  useEffect(() => {
    let opened: Core | null = null;
    let isGone = false;
    void import("cytoscape").then(({ default: cytoscape }) => {
      if (isGone || !box.current) return;
      opened = cytoscape({
        container: box.current,
        elements: [],
        minZoom: 0.05,
        maxZoom: 4,
        boxSelectionEnabled: false,
        autounselectify: true,
        textureOnViewport: false,
        hideEdgesOnViewport: isLarge,
      });
      opened.on("tap", "node", (event: EventObject) => {
        const id = (event.target as NodeSingular).id();
        const node = latest.current.graph.nodes.find((candidate) => candidate.id === id);
        if (node) latest.current.onOpen(node);
      });
      // A window that changes its size shows everything again.
      opened.on("resize", () => opened && fit(opened));
      setCy(opened);
    });
    return () => {
      isGone = true;
      setCy(null);
      opened?.destroy();
    };
  }, [isLarge]);

  // Before the elements, so that they are styled once; and only if it is another style.
  useEffect(() => {
    cy?.style(makeStyle(isDark, latest.current.look));
  }, [cy, isDark, look.isLarge, look.isSmall, look.hasFewEdges]);

  useEffect(() => {
    if (!cy) return undefined;
    const controller = new AbortController();
    void showGraph(cy, graph, controller.signal).then((isDone) => isDone && setDrawn(graph));
    return () => controller.abort();
  }, [cy, graph]);

  useEffect(() => {
    if (!cy) return;
    cy.batch(() => {
      cy.elements().removeClass("selected");
      if (!selected) return;
      const edges = cy.getElementById(selected).addClass("selected").connectedEdges();
      // If it is connected with everything, colour says nothing.
      if (edges.length <= LARGE_GRAPH) edges.addClass("selected");
    });
  }, [cy, selected, drawn]);

  useImperativeHandle(
    ref,
    () => ({
      download: async (name) => {
        if (!cy) return;
        const picture = await cy.png({
          full: true,
          output: "blob-promise",
          bg: isDark ? "#131217" : "#ffffff",
          scale: 2,
          maxWidth: MAX_IMAGE_PIXELS,
          maxHeight: MAX_IMAGE_PIXELS,
        });
        const link = document.createElement("a");
        link.href = URL.createObjectURL(picture);
        link.download = name.replaceAll("/", "-");
        link.click();
        URL.revokeObjectURL(link.href);
      },
    }),
    [cy, isDark],
  );

  const zoom = (factor: number) => cy?.zoom({ level: cy.zoom() * factor, renderedPosition: { x: cy.width() / 2, y: cy.height() / 2 } });
  return (
    <div className={styles.drawing}>
      <span id={CYTOSCAPE_STYLE_ID} hidden />
      <div ref={box} className={styles.canvas} role="img" aria-label={texts.graph.drawingLabel(graph.nodes.length, graph.edges.length)} data-nodes={drawn?.nodes.length} />
      {!cy && (
        <div className={styles.loading}>
          <Spinner label={texts.common.loading} />
        </div>
      )}
      <ul className={styles.legend} aria-label={texts.graph.legend}>
        {[...new Set(graph.nodes.map((node) => node.table))].sort().map((table) => (
          <li key={table}>
            <span style={{ background: colourOf(table, isDark) }} />
            {texts.memory.tables[table] ?? toWords(table)}
          </li>
        ))}
      </ul>
      <div className={styles.zoom}>
        <IconButton icon="add" label={texts.graph.zoomIn} isSmall onClick={() => zoom(1.4)} />
        <IconButton icon="minus" label={texts.graph.zoomOut} isSmall onClick={() => zoom(1 / 1.4)} />
        <IconButton icon="fit" label={texts.graph.fit} isSmall onClick={() => cy && fit(cy)} />
      </div>
    </div>
  );
});

/**
 * Bring the drawing to the state of the graph. Nodes that are there keep their place. A large graph is added in parts,
 * so that the page stays responsive. Return False if it was stopped.
 */
async function showGraph(cy: Core, graph: Graph, signal: AbortSignal): Promise<boolean> {
  const ids = new Set(graph.nodes.map((node) => node.id));
  cy.nodes().filter((node) => !ids.has(node.id())).remove();
  const wanted = new Map(graph.edges.map((edge) => [`${edge.source} ${edge.target} ${edge.rel_type}`, edge]));
  cy.edges().filter((edge) => !wanted.has(edge.id())).remove();
  const known = new Map<string, Position>();
  for (const node of cy.nodes()) known.set(node.id(), node.position());
  const places = placeNodes(graph, known, cy.width() / cy.height() || 1);
  const nodes: ElementDefinition[] = graph.nodes
    .filter((node) => !known.has(node.id))
    .map((node) => ({
      group: "nodes",
      data: { id: node.id, label: node.name, table: node.table, isCentre: node.depth === 0 ? 1 : 0 },
      position: places.get(node.id) ?? { x: 0, y: 0 },
    }));
  const edges: ElementDefinition[] = [...wanted.entries()]
    .filter(([id]) => cy.getElementById(id).empty())
    .map(([id, edge]) => ({
      group: "edges",
      data: { id, source: edge.source, target: edge.target, label: edge.rel_type.replaceAll("_", " "), weight: edge.weight },
    }));
  if (known.size === 0) fit(cy, places.values());
  const added = [...nodes, ...edges];
  for (let start = 0; start < added.length; start += PART_ELEMENTS) {
    if (start > 0) await new Promise(requestAnimationFrame);
    if (signal.aborted) return false;
    cy.add(added.slice(start, start + PART_ELEMENTS));
  }
  return true;
}

/** Show everything; a few nodes are not blown up to fill the view. */
function fit(cy: Core, places: Iterable<Position> = cy.nodes().map((node) => node.position())): void {
  let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const { x, y } of places) {
    [left, right] = [Math.min(left, x), Math.max(right, x)];
    [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
  }
  if (left > right) return;
  const [width, height] = [right - left + MAX_LABEL_WIDTH, bottom - top + NODE_HEIGHT];
  const zoom = Math.min(MAX_FIT_ZOOM, (cy.width() - 2 * FIT_PADDING) / width, (cy.height() - 2 * FIT_PADDING) / height);
  const pan = { x: (cy.width() - zoom * (left + right)) / 2, y: (cy.height() - zoom * (top + bottom)) / 2 };
  cy.viewport({ zoom, pan });
}
