/* Files and jobs: upload, follow the processing, and try again what failed. */
import { useEffect, useRef, useState, type DragEvent } from "react";

import { call } from "../../api/client";
import type { FileView, ProcessingStatus } from "../../api/types";
import { useApi } from "../../api/use-api";
import { Badge, type BadgeTone } from "../../components/badge";
import { Button, IconButton } from "../../components/button";
import { ConfirmDialog } from "../../components/dialog";
import { EmptyState } from "../../components/empty-state";
import { TextField } from "../../components/field";
import { Icon } from "../../components/icon";
import { LoadState } from "../../components/load-state";
import { Segments } from "../../components/segments";
import { showError, showToast } from "../../components/toast";
import { entityPath } from "../../entity-links";
import { formatAge, formatBytes } from "../../format";
import { PageFrame } from "../../layout/page-frame";
import { Link, useQuery } from "../../router";
import { texts } from "../../texts";
import styles from "./files-page.module.css";
import { JobsPanel } from "./jobs-panel";
import { uploadName } from "./upload";
import { UploadList, useUploads } from "./uploads";

const POLL_MS = 1500;
const PAGE_SIZE = 50;
const STATES = ["all", "pending", "failed", "completed"] as const;
const TONES: Record<ProcessingStatus, BadgeTone> = { pending: "neutral", processing: "accent", completed: "positive", failed: "danger" };

export default function FilesPage() {
  const [address, setAddress] = useQuery();
  const state = STATES.find((known) => known === address.get("status")) ?? "all";
  const [limit, setLimit] = useState(PAGE_SIZE);
  const status = state === "all" ? undefined : state;
  const files = useApi((signal) => call("GET /api/v1/files", { query: { status, limit }, signal }), [status, limit]);
  const uploads = useUploads(files.reload);
  const picker = useRef<HTMLInputElement>(null);
  const replaced = useRef<FileView | null>(null);
  const [isOver, setIsOver] = useState(false);
  const isWaiting = files.data?.data.some((file) => file.status === "pending" || file.status === "processing") ?? false;
  useEffect(() => {
    // Not an interval: a request that takes longer would be cancelled by the next one, again and again.
    if (!isWaiting || files.isLoading) return undefined;
    const timer = setTimeout(files.reload, POLL_MS);
    return () => clearTimeout(timer);
  }, [isWaiting, files.isLoading, files.reload]);

  const choose = (file: FileView | null) => {
    replaced.current = file;
    picker.current?.click();
  };
  const retry = async (file: FileView) => {
    if (uploadName(file) !== null || !file.uri) {
      // The bytes of a file that could not be read are not kept.
      choose(file);
      return;
    }
    try {
      await call("POST /api/v1/files/uri", { body: { uri: file.uri } });
      files.reload();
    } catch (error) {
      showError(error);
    }
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setIsOver(false);
    uploads.add([...event.dataTransfer.files]);
  };
  return (
    <PageFrame title={texts.files.title} description={texts.files.description}>
      <div className={styles.page}>
        <section
          className={`${styles.drop} ${isOver ? styles.over : ""}`}
          aria-label={texts.files.add}
          onDragOver={(event) => {
            event.preventDefault();
            setIsOver(true);
          }}
          onDragLeave={() => setIsOver(false)}
          onDrop={drop}
        >
          <span className={styles.dropIcon}>
            <Icon name="upload" size={26} />
          </span>
          <div className={styles.dropText}>
            <h2>{texts.files.dropTitle}</h2>
            <p>{texts.files.dropText}</p>
          </div>
          <Button look="primary" onClick={() => choose(null)}>
            {texts.files.choose}
          </Button>
          <input
            ref={picker}
            type="file"
            multiple
            hidden
            aria-label={texts.files.choose}
            onChange={(event) => {
              const chosen = [...(event.target.files ?? [])];
              uploads.add(chosen, replaced.current);
              event.target.value = "";
            }}
          />
          <AddressForm onAdded={files.reload} />
        </section>
        <UploadList uploads={uploads.list} onCancel={uploads.cancel} />
        <div className={styles.toolbar}>
          <Segments
            label={texts.files.filter}
            value={state}
            options={STATES.map((value) => ({ value, title: texts.files.states[value] }))}
            onChange={(value) => setAddress({ status: value === "all" ? null : value }, true)}
          />
          {isWaiting && <p role="status">{texts.files.working}</p>}
        </div>
        <LoadState loaded={files}>
          {(page) =>
            page.data.length === 0 ? (
              <EmptyState icon="file" title={state === "all" ? texts.files.emptyTitle : texts.files.noneTitle}>
                {state === "all" ? texts.files.empty : texts.files.none}
              </EmptyState>
            ) : (
              <>
                <ul className={styles.list} aria-label={texts.files.title}>
                  {page.data.map((file) => (
                    <FileRow key={file.id} file={file} onRetry={() => void retry(file)} onChanged={files.reload} />
                  ))}
                </ul>
                {page.has_more && <Button onClick={() => setLimit(limit + PAGE_SIZE)}>{texts.common.loadMore}</Button>}
              </>
            )
          }
        </LoadState>
        <JobsPanel />
      </div>
    </PageFrame>
  );
}

function FileRow({ file, onRetry, onChanged }: { file: FileView; onRetry: () => void; onChanged: () => void }) {
  const [isAsking, setIsAsking] = useState(false);
  const remove = async () => {
    try {
      await call("DELETE /api/v1/files/{file_id}", { path: { file_id: file.id } });
      onChanged();
      const restore = () =>
        call("POST /api/v1/restore/{table}/{key}", { path: { table: "files", key: file.id } }).then(onChanged, (error: unknown) => showError(error));
      showToast(texts.memory.deleted(file.name), { action: { label: texts.common.undo, run: () => void restore() } });
    } catch (error) {
      showError(error);
    }
  };
  return (
    <li className={styles.file}>
      <span className={styles.fileIcon}>
        <Icon name="file" />
      </span>
      <div className={styles.fileText}>
        <h3>
          <Link href={entityPath("files", file.key ?? file.id)}>{file.title || file.name}</Link>
        </h3>
        <p className={styles.facts}>
          <Badge tone={TONES[file.status]}>{texts.files.status[file.status]}</Badge>
          {file.status === "completed" && <span>{texts.files.chunks(file.chunks)}</span>}
          {file.size_bytes !== null && <span>{formatBytes(file.size_bytes)}</span>}
          <span>{formatAge(file.updated_at)}</span>
          {file.title && <span className={styles.fileName}>{file.name}</span>}
        </p>
        {file.error && <p className={file.status === "failed" ? styles.error : styles.waiting}>{file.error}</p>}
      </div>
      <div className={styles.fileActions}>
        {file.status === "failed" && (
          <Button isSmall icon="retry" onClick={onRetry}>
            {uploadName(file) !== null ? texts.files.chooseAgain : texts.files.retry}
          </Button>
        )}
        <IconButton icon="trash" label={texts.files.deleteFile(file.name)} isSmall onClick={() => setIsAsking(true)} />
      </div>
      <ConfirmDialog
        isOpen={isAsking}
        onClose={() => setIsAsking(false)}
        title={texts.memory.deleteTitle(file.name)}
        description={texts.files.deleteText}
        confirm={texts.common.delete}
        onConfirm={remove}
      />
    </li>
  );
}

function AddressForm({ onAdded }: { onAdded: () => void }) {
  const [uri, setUri] = useState("");
  const [isBusy, setIsBusy] = useState(false);
  const add = async () => {
    setIsBusy(true);
    try {
      await call("POST /api/v1/files/uri", { body: { uri: uri.trim() } });
      setUri("");
      onAdded();
    } catch (error) {
      showError(error);
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <form
      className={styles.address}
      onSubmit={(event) => {
        event.preventDefault();
        void add();
      }}
    >
      <TextField
        label={texts.files.address}
        isLabelHidden
        placeholder={texts.files.address}
        value={uri}
        maxLength={8000}
        onChange={(event) => setUri(event.target.value)}
      />
      <Button type="submit" isBusy={isBusy} disabled={!uri.trim()}>
        {texts.files.fetch}
      </Button>
    </form>
  );
}
