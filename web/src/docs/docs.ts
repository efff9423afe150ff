/* `/docs`: the operations of the API, to read and to try, without any other server. */
import "swagger-ui-dist/swagger-ui.css";
import "./docs.css";

import { identityHeaders, setTrustsHeaders } from "../api/client";
import { start } from "../api/session";

async function show(): Promise<void> {
  // A chunk of its own: its name changes only with the version.
  const { default: SwaggerUI } = await import("swagger-ui-dist/swagger-ui-es-bundle.js");
  SwaggerUI({
    domNode: document.getElementById("docs"),
    url: "/openapi.json",
    deepLinking: true,
    displayRequestDuration: true,
    defaultModelsExpandDepth: 0,
    docExpansion: "none",
    filter: true,
    validatorUrl: null,
    requestInterceptor: (request) => {
      // A request is one of the person who uses the interface, unless another credential is given on this page.
      if (!request.loadSpec) request.headers = { ...identityHeaders(), ...request.headers };
      return request;
    },
  });
}

start()
  .catch(() => setTrustsHeaders(false))
  .finally(show);
