/* Colours and sizes of the drawing, which style sheets do not reach. */
import type { StylesheetJson } from "cytoscape";

import { LARGE_GRAPH, MAX_LABEL_WIDTH, SMALL_GRAPH } from "./placement";

const COLOURS: Record<string, readonly [light: string, dark: string]> = {
  users: ["#4f46a5", "#a59cf5"],
  ontologies: ["#1c6b45", "#7fd0a3"],
  resources: ["#875200", "#e8b765"],
  moments: ["#a3346e", "#f0a3c8"],
  messages: ["#57534c", "#bcb8c6"],
  sessions: ["#2b6592", "#8cc3ea"],
  files: ["#3f6f75", "#86c9cf"],
};
const OTHER = ["#57534c", "#bcb8c6"] as const;
/** With more edges, the names of relations would cover everything. Then only those of the chosen node are shown. */
const FEW_EDGES = 12;

export function colourOf(table: string, isDark: boolean): string {
  return (COLOURS[table] ?? OTHER)[isDark ? 1 : 0];
}

export interface Look {
  isLarge: boolean;
  isSmall: boolean;
  hasFewEdges: boolean;
}

export function chooseLook(nodes: number, edges: number): Look {
  return { isLarge: nodes > LARGE_GRAPH, isSmall: nodes <= SMALL_GRAPH, hasFewEdges: edges <= FEW_EDGES };
}

export function makeStyle(isDark: boolean, { isLarge, isSmall, hasFewEdges }: Look): StylesheetJson {
  const pick = (pair: readonly [string, string]) => pair[isDark ? 1 : 0];
  const text = isDark ? "#eeecf2" : "#1f1d1a";
  const line = isDark ? "#4a4756" : "#cfcbc2";
  const back = isDark ? "#1b1a20" : "#ffffff";
  const accent = isDark ? "#a9a0ff" : "#5b50d6";
  return [
    {
      selector: "node",
      style: {
        width: 26,
        height: 26,
        "background-color": pick(OTHER),
        label: "data(label)",
        color: text,
        "font-size": isSmall ? 13 : 18,
        "font-family": "system-ui, sans-serif",
        "text-valign": "bottom",
        "text-margin-y": 5,
        "text-wrap": "ellipsis",
        "text-max-width": `${MAX_LABEL_WIDTH}px`,
        "min-zoomed-font-size": isLarge ? 9 : 6,
        "text-background-color": back,
        "text-background-opacity": isLarge ? 0 : 0.8,
        "text-background-padding": "2px",
        "overlay-opacity": 0,
      },
    },
    ...Object.entries(COLOURS).map(([table, pair]) => ({
      selector: `node[table = "${table}"]`,
      style: { "background-color": pick(pair) },
    })),
    { selector: "node[isCentre = 1]", style: { width: 44, height: 44, "font-size": isSmall ? 16 : 24, "font-weight": 700 } },
    {
      selector: "edge",
      style: {
        width: 1.2,
        "line-color": line,
        // Straight lines without arrows are drawn several times faster.
        "curve-style": isLarge ? "haystack" : "bezier",
        "target-arrow-shape": isLarge ? "none" : "triangle",
        "target-arrow-color": line,
        "arrow-scale": 0.8,
        label: hasFewEdges ? "data(label)" : "",
        "font-size": 10,
        color: isDark ? "#a19cae" : "#6b665e",
        "text-rotation": "autorotate",
        "min-zoomed-font-size": 7,
        "text-background-color": back,
        "text-background-opacity": 1,
        "text-background-padding": "3px",
        "overlay-opacity": 0,
      },
    },
    { selector: "node.selected", style: { "border-width": 4, "border-color": accent, "border-opacity": 0.5 } },
    { selector: "edge.selected", style: { "line-color": accent, "target-arrow-color": accent, width: 2, label: isSmall ? "data(label)" : "" } },
  ];
}
