/* What can be done with a session: rename, share, export, forget. */
import { useState } from "react";

import { call, send } from "../../api/client";
import type { SessionView } from "../../api/types";
import { useApi } from "../../api/use-api";
import { Button, IconButton } from "../../components/button";
import { ConfirmDialog, Dialog } from "../../components/dialog";
import { TextField, Toggle } from "../../components/field";
import { LoadState } from "../../components/load-state";
import { Menu, MenuItem, MenuLine } from "../../components/menu";
import { showError, showToast } from "../../components/toast";
import { navigate } from "../../router";
import { texts } from "../../texts";
import styles from "./session-menu.module.css";
import { announceSessions } from "./sessions";

export interface OpenedDialog {
  kind: "rename" | "share" | "forget";
  session: SessionView;
}

interface Props {
  session: SessionView;
  /** Open a dialog. The page shows it, because the list is made anew while a dialog is open. */
  onDialog: (dialog: OpenedDialog) => void;
}

export function SessionMenu({ session, onDialog }: Props) {
  const label = texts.chat.sessionMenu(session.title || texts.chat.untitled);
  return (
    <Menu trigger={<IconButton icon="more" label={label} isSmall />}>
      <MenuItem icon="edit" onSelect={() => onDialog({ kind: "rename", session })}>
        {texts.chat.rename}
      </MenuItem>
      <MenuItem icon="share" onSelect={() => onDialog({ kind: "share", session })}>
        {texts.chat.share}
      </MenuItem>
      <MenuItem icon="download" onSelect={() => void exportSession(session)}>
        {texts.chat.export}
      </MenuItem>
      <MenuLine />
      <MenuItem icon="trash" isDestructive onSelect={() => onDialog({ kind: "forget", session })}>
        {texts.chat.forget}
      </MenuItem>
    </Menu>
  );
}

interface SessionDialogProps {
  dialog: OpenedDialog;
  onClose: () => void;
  onRenamed: (session: SessionView) => void;
  /** It is forgotten: nothing of it may stay on the page. */
  onForgotten: (session: SessionView) => void;
}

export function SessionDialog({ dialog, onClose, onRenamed, onForgotten }: SessionDialogProps) {
  const props = { session: dialog.session, onClose };
  if (dialog.kind === "rename") return <RenameDialog {...props} onRenamed={onRenamed} />;
  if (dialog.kind === "share") return <ShareDialog {...props} />;
  return <ForgetDialog {...props} onForgotten={onForgotten} />;
}

async function exportSession(session: SessionView): Promise<void> {
  try {
    const response = await send("GET /api/v1/sessions/{session}/export", { path: { session: session.id } });
    const address = URL.createObjectURL(await response.blob());
    const link = document.createElement("a");
    link.href = address;
    link.download = `${(session.title ?? session.id).replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60) || session.id}.jsonl`;
    link.click();
    URL.revokeObjectURL(address);
  } catch (error) {
    showError(error);
  }
}

interface DialogProps {
  session: SessionView;
  onClose: () => void;
}

function RenameDialog({ session, onClose, onRenamed }: DialogProps & Pick<SessionDialogProps, "onRenamed">) {
  const [name, setName] = useState(session.name ?? session.title ?? "");
  const [error, setError] = useState<string | null>(null);
  const save = async () => {
    try {
      const body = { name: name.trim() || null };
      onRenamed(await call("PATCH /api/v1/sessions/{session}", { path: { session: session.id }, body }));
      announceSessions();
      onClose();
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    }
  };
  const footer = (
    <>
      <Button onClick={onClose}>{texts.common.cancel}</Button>
      <Button look="primary" type="submit" form="rename">
        {texts.common.save}
      </Button>
    </>
  );
  return (
    <Dialog isOpen onClose={onClose} title={texts.chat.renameTitle} footer={footer}>
      <form
        id="rename"
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <TextField
          label={texts.chat.name}
          hint={texts.chat.nameHint}
          error={error}
          value={name}
          maxLength={200}
          onChange={(event) => setName(event.target.value)}
        />
      </form>
    </Dialog>
  );
}

function ShareDialog({ session, onClose }: DialogProps) {
  const path = { session: session.id };
  const [user, setUser] = useState("");
  const [error, setError] = useState<string | null>(null);
  const shares = useApi((signal) => call("GET /api/v1/sessions/{session}/share", { path, signal }), [session.id]);
  const share = async () => {
    try {
      await call("POST /api/v1/sessions/{session}/share", { path, body: { user: user.trim() } });
      showToast(texts.chat.sharedWith(user.trim()));
      setUser("");
      setError(null);
      shares.reload();
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    }
  };
  const unshare = async (reader: string) => {
    try {
      await call("DELETE /api/v1/sessions/{session}/share/{user}", { path: { ...path, user: reader } });
      shares.reload();
    } catch (failure) {
      showError(failure);
    }
  };
  return (
    <Dialog isOpen onClose={onClose} title={texts.chat.shareTitle} description={texts.chat.shareText}>
      <form
        className={styles.share}
        onSubmit={(event) => {
          event.preventDefault();
          void share();
        }}
      >
        <TextField
          label={texts.chat.shareWith}
          placeholder="bob@example.com"
          error={error}
          value={user}
          maxLength={320}
          onChange={(event) => setUser(event.target.value)}
        />
        <Button look="primary" type="submit" disabled={!user.trim()}>
          {texts.chat.shareNow}
        </Button>
      </form>
      <h3 className={styles.readers}>{texts.chat.readers}</h3>
      <LoadState loaded={shares}>
        {(page) =>
          page.data.length === 0 ? (
            <p className={styles.note}>{texts.chat.noReaders}</p>
          ) : (
            <ul className={styles.list}>
              {page.data.map(({ shared_with_user_id: reader }) => (
                <li key={reader}>
                  <span>{reader}</span>
                  <Button isSmall onClick={() => void unshare(reader)}>
                    {texts.chat.unshare}
                  </Button>
                </li>
              ))}
            </ul>
          )
        }
      </LoadState>
    </Dialog>
  );
}

function ForgetDialog({ session, onClose, onForgotten }: DialogProps & Pick<SessionDialogProps, "onForgotten">) {
  const [isFinal, setIsFinal] = useState(false);
  const path = { session: session.id };
  const forget = async () => {
    try {
      await call("DELETE /api/v1/sessions/{session}", { path, query: { erase: isFinal } });
    } catch (error) {
      showError(error);
      return;
    }
    onForgotten(session);
    announceSessions();
    showToast(texts.chat.forgotten, isFinal ? {} : { action: { label: texts.common.undo, run: () => void restore() } });
  };
  const restore = async () => {
    try {
      await call("POST /api/v1/sessions/{session}/restore", { path });
      announceSessions();
      navigate(`/chat/${session.id}`);
    } catch (error) {
      showError(error);
    }
  };
  return (
    <ConfirmDialog
      isOpen
      onClose={onClose}
      title={texts.chat.forgetTitle}
      description={texts.chat.forgetText(session.title || texts.chat.untitled, session.message_count)}
      confirm={isFinal ? texts.chat.forgetFinally : texts.chat.forget}
      onConfirm={forget}
    >
      <Toggle
        label={texts.chat.forgetFinal}
        checked={isFinal}
        onChange={(event) => setIsFinal(event.currentTarget.checked)}
      />
    </ConfirmDialog>
  );
}
