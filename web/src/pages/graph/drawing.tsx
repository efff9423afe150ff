/* The graph as a drawing, by Cytoscape, which is loaded only here. */
import type { Core, EventObject, NodeSingular } from "cytoscape";
import { forwardRef, useEffect, useImperativeHandle, useRef, useState } from "react";

import type { Graph, Node } from "../../api/types";
import { IconButton } from "../../components/button";
import { Spinner } from "../../components/spinner";
import { texts } from "../../texts";
import { useIsDark } from "../../theme";
import { makeStyle } from "./drawing-style";
import styles from "./graph-page.module.css";
import { placeNodes, type Position } from "./placement";

/** Cytoscape writes no style element into the page if it finds this id, and our style sheet says the same. */
const CYTOSCAPE_STYLE_ID = "__________cytoscape_stylesheet";
/** More nodes are drawn without moving labels and edges while the view moves. */
const LARGE_GRAPH = 300;
const MAX_FIT_ZOOM = 1.2;
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
  const isDark = useIsDark();
  const isLarge = graph.nodes.length > LARGE_GRAPH;
  const latest = useRef({ graph, onOpen });
  latest.current = { graph, onOpen };

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
        textureOnViewport: isLarge,
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

  useEffect(() => {
    if (cy) showGraph(cy, graph);
  }, [cy, graph]);

  useEffect(() => {
    cy?.style(makeStyle(isDark, graph.nodes.length));
  }, [cy, isDark, graph]);

  useEffect(() => {
    if (!cy) return;
    cy.batch(() => {
      cy.elements().removeClass("selected");
      if (!selected) return;
      const edges = cy.getElementById(selected).addClass("selected").connectedEdges();
      // If it is connected with everything, colour says nothing.
      if (edges.length <= LARGE_GRAPH) edges.addClass("selected");
    });
  }, [cy, selected, graph]);

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
      <div ref={box} className={styles.canvas} role="img" aria-label={texts.graph.drawingLabel(graph.nodes.length, graph.edges.length)} data-nodes={cy ? graph.nodes.length : undefined} />
      {!cy && (
        <div className={styles.loading}>
          <Spinner label={texts.common.loading} />
        </div>
      )}
      <div className={styles.zoom}>
        <IconButton icon="add" label={texts.graph.zoomIn} isSmall onClick={() => zoom(1.4)} />
        <IconButton icon="minus" label={texts.graph.zoomOut} isSmall onClick={() => zoom(1 / 1.4)} />
        <IconButton icon="system" label={texts.graph.fit} isSmall onClick={() => cy && fit(cy)} />
      </div>
    </div>
  );
});

/** Bring the drawing to the state of the graph. Nodes that are there keep their place. */
function showGraph(cy: Core, graph: Graph): void {
  const ids = new Set(graph.nodes.map((node) => node.id));
  const isFirst = cy.nodes().empty() || !graph.nodes.some((node) => cy.getElementById(node.id).nonempty());
  cy.batch(() => {
    cy.nodes().filter((node) => !ids.has(node.id())).remove();
    const known = new Map<string, Position>();
    for (const node of cy.nodes()) known.set(node.id(), node.position());
    const places = placeNodes(graph, known);
    const added = graph.nodes.filter((node) => !known.has(node.id));
    cy.add(
      added.map((node) => ({
        group: "nodes" as const,
        data: { id: node.id, label: node.name, table: node.table, isCentre: node.depth === 0 ? 1 : 0 },
        position: places.get(node.id) ?? { x: 0, y: 0 },
      })),
    );
    const wanted = new Map(graph.edges.map((edge) => [`${edge.source} ${edge.target} ${edge.rel_type}`, edge]));
    cy.edges().filter((edge) => !wanted.has(edge.id())).remove();
    cy.add(
      [...wanted.entries()]
        .filter(([id]) => cy.getElementById(id).empty())
        .map(([id, edge]) => ({
          group: "edges" as const,
          data: { id, source: edge.source, target: edge.target, label: edge.rel_type.replaceAll("_", " "), weight: edge.weight },
        })),
    );
  });
  if (isFirst) fit(cy);
}

/** Show everything; a few nodes are not blown up to fill the view. */
function fit(cy: Core): void {
  cy.fit(undefined, 40);
  if (cy.zoom() > MAX_FIT_ZOOM) {
    cy.zoom(MAX_FIT_ZOOM);
    cy.center();
  }
}
