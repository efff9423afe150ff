import { fileURLToPath } from "node:url";

import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const SERVER = process.env["REM_SERVER"] ?? "http://127.0.0.1:8000";

export default defineConfig({
  plugins: [react()],
  resolve: {
    alias: {
      // The original writes a <style> element into the page, which the Content-Security-Policy forbids.
      "react-remove-scroll": fileURLToPath(new URL("./src/components/remove-scroll.tsx", import.meta.url)),
    },
  },
  build: {
    outDir: process.env["WEB_OUT"] ?? "../src/rem/api/web_dist",
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    // Small files as data: addresses would need an exception in the Content-Security-Policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
    // Swagger UI comes as one file; only /docs loads it.
    chunkSizeWarningLimit: 2000,
    rollupOptions: { input: ["index.html", "docs.html"] },
  },
  server: {
    // `npm run dev` serves the page itself and passes all else to a running `rem serve`.
    proxy: { "/api": SERVER, "/v1": SERVER, "/health": SERVER, "/docs": SERVER, "/openapi.json": SERVER },
  },
});
