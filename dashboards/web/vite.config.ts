import { defineConfig } from "vite";

// The controller serves the same policy as a header; here it also holds behind any other server.
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");

export default defineConfig({
  plugins: [
    {
      name: "content-security-policy",
      apply: "build",
      transformIndexHtml: () => [
        {
          tag: "meta",
          attrs: { "http-equiv": "Content-Security-Policy", content: POLICY },
          injectTo: "head-prepend",
        },
      ],
    },
  ],
  build: {
    outDir: "../../aegis/controller/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: ["chrome123", "firefox120", "safari17.5"],
    reportCompressedSize: true,
  },
  server: {
    proxy: { "/api": "http://127.0.0.1:8500" },
  },
});
