/* The uploads of this page: one after the other, each with a bar. */
import { useCallback, useRef, useState } from "react";

import { call } from "../../api/client";
import type { FileView } from "../../api/types";
import { IconButton } from "../../components/button";
import { Icon } from "../../components/icon";
import { describeError } from "../../components/toast";
import { formatBytes } from "../../format";
import { texts } from "../../texts";
import styles from "./files-page.module.css";
import { replacementName, uploadFile } from "./upload";

export interface Upload {
  id: number;
  name: string;
  size: number;
  /** The share that is sent, 0 to 1; null while the server takes no more files. */
  share: number | null;
  error: string | null;
}

export function useUploads(onDone: () => void) {
  const [list, setList] = useState<readonly Upload[]>([]);
  const controllers = useRef(new Map<number, AbortController>());
  const queue = useRef<Promise<void>>(Promise.resolve());
  const lastId = useRef(0);
  const change = (id: number, changes: Partial<Upload> | null) =>
    setList((old) => (changes ? old.map((item) => (item.id === id ? { ...item, ...changes } : item)) : old.filter((item) => item.id !== id)));

  /** Upload files, or the first of them in the place of a stored one. */
  const add = (files: readonly File[], replaced: FileView | null = null) => {
    for (const file of replaced ? files.slice(0, 1) : files) {
      lastId.current += 1;
      const id = lastId.current;
      const controller = new AbortController();
      controllers.current.set(id, controller);
      const shown = replaced ? replacementName(file, replaced) : file.name;
      setList((old) => [...old, { id, name: shown, size: file.size, share: 0, error: null }]);
      queue.current = queue.current.then(async () => {
        if (controller.signal.aborted) return;
        try {
          const stored = await uploadFile(file, shown, (share) => change(id, { share }), controller.signal);
          if (replaced && stored.id !== replaced.id) {
            await call("DELETE /api/v1/files/{file_id}", { path: { file_id: replaced.id } });
          }
          change(id, null);
          onDone();
        } catch (error) {
          if (controller.signal.aborted) return;
          change(id, { error: describeError(error) });
        }
      });
    }
  };
  const cancel = useCallback((id: number) => {
    controllers.current.get(id)?.abort();
    setList((old) => old.filter((item) => item.id !== id));
  }, []);
  return { list, add, cancel };
}

export function UploadList({ uploads, onCancel }: { uploads: readonly Upload[]; onCancel: (id: number) => void }) {
  if (!uploads.length) return null;
  return (
    <ul className={styles.list} aria-label={texts.files.uploads}>
      {uploads.map((upload) => (
        <li key={upload.id} className={styles.file}>
          <span className={styles.fileIcon}>
            <Icon name={upload.error ? "alert" : "upload"} />
          </span>
          <div className={styles.fileText}>
            <h3>{upload.name}</h3>
            {upload.error ? (
              <p className={styles.error} role="alert">
                {upload.error}
              </p>
            ) : (
              <>
                <progress className={styles.progress} max={1} value={upload.share ?? 0} aria-label={texts.files.progress(upload.name)} />
                <p className={styles.facts}>
                  {upload.share === null ? texts.files.waits : texts.files.sent(Math.round(upload.share * 100), formatBytes(upload.size))}
                </p>
              </>
            )}
          </div>
          <IconButton icon="close" label={upload.error ? texts.common.dismiss : texts.files.cancel(upload.name)} isSmall onClick={() => onCancel(upload.id)} />
        </li>
      ))}
    </ul>
  );
}
