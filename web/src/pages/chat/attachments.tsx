/* Files that are dropped on the chat: they become part of the memory, and the next question can be about them. */
import { useCallback, useRef, useState } from "react";

import { call } from "../../api/client";
import type { FileView } from "../../api/types";
import { IconButton } from "../../components/button";
import { Icon } from "../../components/icon";
import { Spinner } from "../../components/spinner";
import { describeError } from "../../components/toast";
import { texts } from "../../texts";
import { uploadFile } from "../files/upload";
import styles from "./attachments.module.css";

export interface Attachment {
  id: number;
  name: string;
  state: "reading" | "done" | "failed";
  note: string;
}

/** A short note is read at once. */
const FIRST_POLL_MS = 300;
const POLL_MS = 1500;
let lastId = 0;

export function useAttachments(): {
  attachments: readonly Attachment[];
  add: (files: readonly File[]) => void;
  remove: (id: number) => void;
} {
  const [attachments, setAttachments] = useState<readonly Attachment[]>([]);
  const controllers = useRef(new Map<number, AbortController>());
  const change = useCallback((id: number, part: Partial<Attachment>) => {
    setAttachments((old) => old.map((each) => (each.id === id ? { ...each, ...part } : each)));
  }, []);
  const add = useCallback(
    (files: readonly File[]) => {
      for (const file of files) {
        lastId += 1;
        const id = lastId;
        const controller = new AbortController();
        controllers.current.set(id, controller);
        setAttachments((old) => [...old, { id, name: file.name, state: "reading", note: texts.chat.reading }]);
        const showProgress = (share: number | null) =>
          change(id, { note: share !== null && share < 1 ? texts.chat.sending(Math.floor(share * 100)) : texts.chat.reading });
        upload(file, showProgress, controller.signal).then(
          (part) => change(id, part),
          (error: unknown) => change(id, { state: "failed", note: describeError(error) }),
        );
      }
    },
    [change],
  );
  const remove = useCallback((id: number) => {
    // What is not sent yet stops; what the server has, it reads.
    controllers.current.get(id)?.abort();
    controllers.current.delete(id);
    setAttachments((old) => old.filter((each) => each.id !== id));
  }, []);
  return { attachments, add, remove };
}

async function upload(file: File, onProgress: (share: number | null) => void, signal: AbortSignal): Promise<Partial<Attachment>> {
  let stored = await uploadFile(file, file.name, onProgress, signal);
  for (let wait = FIRST_POLL_MS; stored.status === "pending" || stored.status === "processing"; wait = POLL_MS) {
    await new Promise((resolve) => setTimeout(resolve, wait));
    stored = await call("GET /api/v1/files/{file_id}", { path: { file_id: stored.id }, signal });
  }
  return describe(stored);
}

function describe(file: FileView): Partial<Attachment> {
  if (file.status === "failed") return { state: "failed", note: file.error ?? texts.errors.unknown };
  return { state: "done", note: texts.chat.read(file.chunks) };
}

export function AttachmentList({ attachments, onRemove }: { attachments: readonly Attachment[]; onRemove: (id: number) => void }) {
  if (attachments.length === 0) return null;
  return (
    <ul className={styles.list} aria-label={texts.chat.files}>
      {attachments.map((attachment) => (
        <li key={attachment.id} className={styles.file} data-state={attachment.state}>
          {attachment.state === "reading" ? (
            <Spinner size={16} />
          ) : (
            <Icon name={attachment.state === "done" ? "file" : "alert"} size={16} />
          )}
          <span className={styles.name}>{attachment.name}</span>
          <span className={styles.note} role="status">
            {attachment.note}
          </span>
          <IconButton
            icon="close"
            label={texts.chat.hideFile(attachment.name)}
            isSmall
            onClick={() => onRemove(attachment.id)}
          />
        </li>
      ))}
    </ul>
  );
}
