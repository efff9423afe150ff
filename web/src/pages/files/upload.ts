/* Upload one file, with its progress. `fetch` does not tell how much has been sent. */
import { ApiError, identityHeaders, OFFLINE, SIGN_IN_NEEDED } from "../../api/client";
import type { FileView, PageFileView } from "../../api/types";

const UPLOAD = "upload:///";

/** Return the name that a file was uploaded under; null if the server fetched it from its address. */
export function uploadName(file: FileView): string | null {
  if (!file.uri) return file.name;
  return file.uri.startsWith(UPLOAD) ? decodeURIComponent(file.uri.slice(UPLOAD.length)) : null;
}

/** Return the name to upload a file under that replaces a stored one: the stored name if both have the same format. */
export function replacementName(file: File, replaced: FileView): string {
  const name = uploadName(replaced) ?? replaced.name;
  // The server reads a file as what its name says, so a text under the name of a PDF could not be read.
  return extension(file.name) === extension(name) ? name : file.name;
}

function extension(name: string): string {
  return /\.[^./]+$/.exec(name)?.[0].toLowerCase() ?? "";
}

/**
 * Send a file, and return the row that waits for a worker. Call `onProgress` with the share that is sent (0 to 1), and with null
 * while the server takes no more files: then this waits and goes on by itself.
 */
export async function uploadFile(
  file: File,
  name: string,
  onProgress: (share: number | null) => void,
  signal: AbortSignal,
): Promise<FileView> {
  for (;;) {
    const answer = await send(file, name, onProgress, signal);
    if (!(answer instanceof ApiError)) return answer;
    if (answer.retryAfter === null) throw answer;
    onProgress(null);
    await sleep(answer.retryAfter * 1000, signal);
  }
}

/** Send a file once, and return its row, or the refusal of the server. */
function send(file: File, name: string, onProgress: (share: number) => void, signal: AbortSignal): Promise<FileView | ApiError> {
  const form = new FormData();
  form.append("files", file, name);
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", "/api/v1/files");
    for (const [header, value] of Object.entries(identityHeaders())) request.setRequestHeader(header, value);
    request.responseType = "json";
    request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    request.onload = () => {
      const answer = request.response as (PageFileView & { error?: { code: string; message: string } }) | null;
      const row = answer?.data?.[0];
      const wait = request.status === 429 ? Number(request.getResponseHeader("retry-after")) : 0;
      if (request.status === 401) window.dispatchEvent(new Event(SIGN_IN_NEEDED));
      if (request.status < 300 && row) resolve(row);
      else resolve(new ApiError(request.status, answer?.error?.code ?? "unknown", answer?.error?.message ?? request.statusText, null, wait || null));
    };
    request.onerror = () => reject(new ApiError(0, OFFLINE, ""));
    request.onabort = () => reject(new DOMException("", "AbortError"));
    signal.addEventListener("abort", () => request.abort(), { once: true });
    request.send(form);
  });
}

function sleep(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        reject(new DOMException("", "AbortError"));
      },
      { once: true },
    );
  });
}
