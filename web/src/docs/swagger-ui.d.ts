declare module "swagger-ui-dist/swagger-ui-es-bundle.js" {
  interface SwaggerRequest {
    loadSpec?: boolean;
    headers: Record<string, string>;
  }
  export default function SwaggerUI(options: {
    domNode: Element | null;
    url: string;
    deepLinking?: boolean;
    displayRequestDuration?: boolean;
    defaultModelsExpandDepth?: number;
    docExpansion?: "none" | "list" | "full";
    filter?: boolean;
    validatorUrl?: string | null;
    requestInterceptor?: (request: SwaggerRequest) => SwaggerRequest;
  }): void;
}
