/* The pages of the interface. A new page: an entry here, its texts in texts.ts, its path in the server's WEB_PAGES. */
import { lazy, type ComponentType, type LazyExoticComponent } from "react";

import type { IconName } from "../components/icon";
import { texts } from "../texts";

export interface Page {
  /** The beginning of its addresses. What follows is for the page itself. */
  path: string;
  title: string;
  icon: IconName;
  component: LazyExoticComponent<ComponentType>;
}

export const PAGES: readonly Page[] = [
  { path: "/chat", title: texts.navigation.chat, icon: "chat", component: lazy(() => import("./chat/chat-page")) },
  {
    path: "/memory",
    title: texts.navigation.memory,
    icon: "memory",
    component: lazy(() => import("./memory/memory-page")),
  },
  { path: "/graph", title: texts.navigation.graph, icon: "graph", component: lazy(() => import("./graph/graph-page")) },
  {
    path: "/timeline",
    title: texts.navigation.timeline,
    icon: "timeline",
    component: lazy(() => import("./timeline/timeline-page")),
  },
  { path: "/files", title: texts.navigation.files, icon: "file", component: lazy(() => import("./files/files-page")) },
  { path: "/care", title: texts.navigation.care, icon: "care", component: lazy(() => import("./care/care-page")) },
];
