/* Chat with the memory: the sessions at the side, the open one beside it. */
import { useEffect, useMemo, useRef, useState, useSyncExternalStore, type DragEvent } from "react";

import { call } from "../../api/client";
import { useIdentity } from "../../api/identity";
import type { SessionView } from "../../api/types";
import { useApi } from "../../api/use-api";
import { Button, IconButton } from "../../components/button";
import { Dialog } from "../../components/dialog";
import { EmptyState } from "../../components/empty-state";
import { Icon } from "../../components/icon";
import { Spinner } from "../../components/spinner";
import { describeError, showError } from "../../components/toast";
import { useTitle } from "../../layout/page-frame";
import { useReturn } from "../../return";
import { matchPath, navigate, usePath } from "../../router";
import { texts } from "../../texts";
import { useAttachments } from "./attachments";
import styles from "./chat-page.module.css";
import { Composer } from "./composer";
import { closeConversation, newSessionId, openConversation, type ChatChoice, type Conversation } from "./conversation";
import { ConversationView } from "./conversation-view";
import { SessionList } from "./session-list";
import { SessionDialog, SessionMenu, type OpenedDialog } from "./session-menu";
import { announceSessions } from "./sessions";

const CHOICE_KEY = "rem.chat";
const MAX_TITLE_CHARS = 80;

export default function ChatPage() {
  const path = usePath();
  const openId = matchPath("/chat/:session", path)?.["session"] ?? null;
  const { user, tenant } = useIdentity();
  const owner = `${user} ${tenant}`;
  // An id for what is not begun yet, until it is; then a new one.
  const nextId = useRef(newSessionId());
  if (openId === nextId.current) nextId.current = newSessionId();
  const id = openId ?? nextId.current;
  const conversation = useMemo(() => openConversation(owner, id, openId === null), [owner, id, openId]);
  const [isListShown, setIsListShown] = useState(false);
  const [dialog, setDialog] = useState<OpenedDialog | null>(null);
  const rename = (session: SessionView) => {
    if (session.id === openId) conversation.setSession(session);
  };
  const forget = (session: SessionView) => {
    closeConversation(owner, session.id);
    if (session.id === openId) navigate("/chat");
  };
  return (
    <div className={styles.page}>
      <aside className={styles.side} aria-label={texts.chat.sessions}>
        <SessionList openId={openId} onDialog={setDialog} />
      </aside>
      <Dialog isOpen={isListShown} onClose={() => setIsListShown(false)} title={texts.chat.sessions} side="left">
        <SessionList openId={openId} onChoose={() => setIsListShown(false)} onDialog={setDialog} />
      </Dialog>
      {dialog && <SessionDialog dialog={dialog} onClose={() => setDialog(null)} onRenamed={rename} onForgotten={forget} />}
      <ChatRoom
        key={`${owner} ${id}`}
        owner={owner}
        conversation={conversation}
        onShowList={() => setIsListShown(true)}
        onDialog={setDialog}
      />
    </div>
  );
}

interface RoomProps {
  owner: string;
  conversation: Conversation;
  onShowList: () => void;
  onDialog: (dialog: OpenedDialog) => void;
}

/** What was written and not sent, by session: another page, another session or a login must not cost it. */
const drafts = new Map<string, string>();

function ChatRoom({ owner, conversation, onShowList, onDialog }: RoomProps) {
  const { turns, session, phase, error, isRunning } = useSyncExternalStore(conversation.subscribe, conversation.getState);
  const me = useApi((signal) => call("GET /api/auth/me", { signal }), []);
  const isNew = phase === "new";
  const draftKey = `${owner} ${isNew ? "" : conversation.id}`;
  const [draft, changeDraft] = useState(() => drafts.get(draftKey) ?? "");
  const setDraft = (text: string) => {
    if (text) drafts.set(draftKey, text);
    else drafts.delete(draftKey);
    changeDraft(text);
  };
  const [choice, setChoice] = useChoice(session?.agent_schema ?? null);
  const files = useAttachments();
  const drop = useFileDrop(files.add);
  useReturn(() => {
    void conversation.catchUp();
    announceSessions();
  });
  const question = turns[0]?.question?.slice(0, MAX_TITLE_CHARS);
  const title = isNew ? texts.chat.title : session?.title || question || texts.chat.untitled;
  useTitle(title);
  const isOwn = !session || !me.data || session.user_id === me.data.id || me.data.id === null;
  const begin = () => {
    if (isNew) navigate(`/chat/${conversation.id}`, { replace: true });
  };
  const ask = (text: string) => {
    void conversation.ask(text, choice);
    begin();
  };
  return (
    <section className={styles.room} {...drop.handlers}>
      <header className={styles.header}>
        <span className={styles.toList}>
          <IconButton icon="menu" label={texts.chat.showSessions} onClick={onShowList} />
        </span>
        <h1 className={styles.title}>{title}</h1>
        {session && isOwn && <SessionMenu session={session} onDialog={onDialog} />}
        <span className={styles.toList}>
          <IconButton icon="add" label={texts.chat.newSession} onClick={() => navigate("/chat")} />
        </span>
      </header>
      {phase === "failed" ? (
        <EmptyState
          icon="question"
          title={error?.status === 404 ? texts.chat.noSession : texts.errors.title}
          actions={
            error?.status === 404 ? (
              <Button look="primary" onClick={() => navigate("/chat")}>
                {texts.chat.newSession}
              </Button>
            ) : (
              <Button onClick={() => void conversation.load()}>{texts.common.tryAgain}</Button>
            )
          }
        >
          {error?.status === 404 ? texts.chat.noSessionText : describeError(error)}
        </EmptyState>
      ) : phase === "loading" ? (
        <div className={styles.loading}>
          <Spinner label={texts.common.loading} />
        </div>
      ) : isNew ? (
        <Welcome onChoose={setDraft} />
      ) : (
        <ConversationView conversation={conversation} choice={choice} isOwn={isOwn} />
      )}
      {(isNew || phase === "ready") && (
        <footer className={styles.footer}>
          {isOwn ? (
            <Composer
              draft={draft}
              onDraft={setDraft}
              isRunning={isRunning}
              choice={choice}
              onChoice={setChoice}
              onSend={ask}
              onSpeak={(recording) => {
                void conversation.speak(recording, choice);
                begin();
              }}
              onStop={() => conversation.stop()}
              attachments={files.attachments}
              onFiles={files.add}
              onRemoveFile={files.remove}
            />
          ) : (
            <ReadOnly conversation={conversation} />
          )}
        </footer>
      )}
      {drop.isOver && (
        <div className={styles.drop} aria-hidden="true">
          <Icon name="upload" size={32} />
          <p>{texts.chat.dropFiles}</p>
        </div>
      )}
    </section>
  );
}

function Welcome({ onChoose }: { onChoose: (text: string) => void }) {
  return (
    <div className={styles.welcome}>
      <h2>{texts.chat.welcome}</h2>
      <p className={styles.welcomeText}>{texts.chat.welcomeText}</p>
      <ul className={styles.starters}>
        {texts.chat.starters.map(({ title, text, icon }) => (
          <li key={title}>
            <button type="button" className={styles.starter} onClick={() => onChoose(text)}>
              <Icon name={icon} size={18} />
              <span>
                <strong>{title}</strong>
                <span>{text}</span>
              </span>
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** Another person shares this session. A copy can be continued. */
function ReadOnly({ conversation }: { conversation: Conversation }) {
  const copy = async () => {
    try {
      const session = await call("POST /api/v1/sessions/{session}/clone", { path: { session: conversation.id } });
      navigate(`/chat/${session.id}`);
    } catch (error) {
      showError(error);
    }
  };
  return (
    <div className={styles.readOnly}>
      <Icon name="share" size={18} />
      <p>{texts.chat.readOnly}</p>
      <Button isSmall icon="copy" onClick={() => void copy()}>
        {texts.chat.copySession}
      </Button>
    </div>
  );
}

/** The agent of the session, or else what was chosen last; the model as chosen last. */
function useChoice(agent: string | null): [ChatChoice, (choice: ChatChoice) => void] {
  const [chosen, setChosen] = useState<ChatChoice>(readChoice);
  const [isChanged, setIsChanged] = useState(false);
  const choice = isChanged || agent === null ? chosen : { ...chosen, agent };
  const choose = (next: ChatChoice) => {
    localStorage.setItem(CHOICE_KEY, JSON.stringify(next));
    setChosen(next);
    setIsChanged(true);
  };
  return [choice, choose];
}

function readChoice(): ChatChoice {
  try {
    const stored = JSON.parse(localStorage.getItem(CHOICE_KEY) ?? "{}") as Partial<ChatChoice>;
    return { agent: stored.agent ?? null, model: stored.model ?? null };
  } catch {
    return { agent: null, model: null };
  }
}

function useFileDrop(onFiles: (files: readonly File[]) => void) {
  const depth = useRef(0);
  const [isOver, setIsOver] = useState(false);
  const hasFiles = (event: DragEvent) => event.dataTransfer.types.includes("Files");
  const leave = () => {
    depth.current = 0;
    setIsOver(false);
  };
  useEffect(() => {
    // A file that is dropped beside the chat must not replace the page.
    const keep = (event: globalThis.DragEvent) => event.preventDefault();
    window.addEventListener("dragover", keep);
    window.addEventListener("drop", keep);
    return () => {
      window.removeEventListener("dragover", keep);
      window.removeEventListener("drop", keep);
    };
  }, []);
  const handlers = {
    onDragEnter: (event: DragEvent) => {
      if (!hasFiles(event)) return;
      depth.current += 1;
      setIsOver(true);
    },
    onDragLeave: () => {
      depth.current -= 1;
      if (depth.current <= 0) leave();
    },
    onDrop: (event: DragEvent) => {
      event.preventDefault();
      leave();
      onFiles([...event.dataTransfer.files]);
    },
  };
  return { isOver, handlers };
}
