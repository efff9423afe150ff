import "./styles/tokens.css";
import "./styles/base.css";

import { createRoot } from "react-dom/client";

import { App } from "./app";
import { applyTheme } from "./theme";

applyTheme();
const root = document.getElementById("root");
if (root) createRoot(root).render(<App />);
