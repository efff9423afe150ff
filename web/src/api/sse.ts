/* Read server-sent events of a response. EventSource cannot: it sends no body and no headers. */
import { ApiError, OFFLINE } from "./client";

export interface ServerEvent {
  /** Null for a chunk without a name. */
  name: string | null;
  data: string;
}

/** Yield the events of a response as they arrive. Throws ApiError (`offline`) if the connection breaks. */
export async function* readEvents(response: Response): AsyncGenerator<ServerEvent> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return;
  let rest = "";
  let name: string | null = null;
  let data: string[] = [];
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(throwOffline);
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        const text = line.endsWith("\r") ? line.slice(0, -1) : line;
        if (text === "") {
          if (data.length > 0) yield { name, data: data.join("\n") };
          name = null;
          data = [];
        } else if (text.startsWith("data:")) data.push(text.slice(text[5] === " " ? 6 : 5));
        else if (text.startsWith("event:")) name = text.slice(6).trim();
      }
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

function throwOffline(error: unknown): never {
  if (error instanceof DOMException && error.name === "AbortError") throw error;
  throw new ApiError(0, OFFLINE, "");
}
